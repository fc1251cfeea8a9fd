"""The limits of AWS that Redrive works within, each with its reason. Bytes and seconds.

The sources are the SQS API reference (SendMessage, SendMessageBatch, ChangeMessageVisibility) and
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html
"""

from typing import Final

# One message, and also all the messages of one SendMessageBatch together: body and attributes.
# Raised from 256 KiB in August 2025; a queue may be set lower, so the publisher asks for its
# queue's own.
MESSAGE_BYTES: Final = 1_048_576
# Every batch call of SQS: send, delete, change visibility.
BATCH_ENTRIES: Final = 10
ATTRIBUTES: Final = 10
VISIBILITY_SECONDS: Final = 43_200  # twelve hours, counted from the receive; more is an error
GROUP_ID_CHARACTERS: Final = 128  # MessageGroupId and MessageDeduplicationId alike

# Redrive's own bounds.
KEY_BYTES: Final = 512  # keeps a job id readable, and the `redrive` attribute within its size
ENVELOPE_BYTES: Final = 4_096  # the `redrive` attribute, beside the message it explains
CAUSE_MESSAGE_BYTES: Final = 1_024  # of an error's message
RESULT_BYTES: Final = 32_768  # of a stored result: a DynamoDB item has 400 KB, a write unit 1 KB
