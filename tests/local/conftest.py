import io
import time
import zipfile

import pytest

from local.aws import embedded_aws

PATIENCE_SECONDS = 15


@pytest.fixture(scope="module")
def aws(tmp_path_factory):
    with embedded_aws(tmp_path_factory.mktemp("aws")) as aws:
        yield aws


def create_function(aws, name, source, timeout_seconds=60):
    """A Lambda function of one file. It may do nothing: its role has no policy."""
    trust = '{"Version": "2012-10-17", "Statement": []}'
    role = aws.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=trust)
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("handler.py", source)
    return aws.client("lambda").create_function(
        FunctionName=name,
        Runtime="python3.13",
        Role=role["Role"]["Arn"],
        Handler="handler.handler",
        Code={"ZipFile": package.getvalue()},
        Timeout=timeout_seconds,
    )["FunctionArn"]


def eventually(condition, what):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
