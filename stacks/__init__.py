"""What exists in AWS. Imports `aws_cdk`; names the folders in `functions/`, never imports them."""
