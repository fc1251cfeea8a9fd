"""Signature Version 4, of the one kind of request that is made without botocore."""

import hashlib
import hmac
import time

from botocore.credentials import Credentials


class Signer:
    """Signature Version 4 of a POST to the path `/`.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
    """

    def __init__(self, credentials: Credentials, region: str, service: str) -> None:
        self._credentials = credentials
        self._scope = f"{region}/{service}/aws4_request"
        self._key: tuple[tuple[str, str], bytes] = ("", ""), b""

    def sign(self, headers: dict[str, str], body: bytes) -> dict[str, str]:
        """The headers that a request with these headers, `Host` among them, needs besides."""
        credentials = self._credentials.get_frozen_credentials()
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        added = {"X-Amz-Date": now}
        if credentials.token:
            added["X-Amz-Security-Token"] = credentials.token
        signed = {name.lower(): value for name, value in (headers | added).items()}
        del signed["user-agent"]  # a proxy may change it
        names = ";".join(sorted(signed))
        lines = "\n".join(f"{name}:{signed[name]}" for name in sorted(signed))
        request = f"POST\n/\n\n{lines}\n\n{names}\n{hashlib.sha256(body).hexdigest()}"
        scope = f"{now[:8]}/{self._scope}"
        text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        key = self._key_for(str(credentials.secret_key), scope)
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        added["Authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, "
            f"SignedHeaders={names}, Signature={signature}"
        )
        return added

    def _key_for(self, secret: str, scope: str) -> bytes:
        """The key that is good for a day."""
        made_for, key = self._key
        if made_for != (secret, scope):
            key = f"AWS4{secret}".encode()
            for part in scope.split("/"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._key = (secret, scope), key
        return key
