import socket
import ssl
import stat
import threading

from local.certificates import write_certificates


def test_a_client_that_trusts_the_authority_can_talk_to_127_0_0_1_and_localhost(tmp_path):
    files = write_certificates(tmp_path)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(files.certificate, files.key)
    client = ssl.create_default_context(cafile=files.authority)

    for host in ("127.0.0.1", "localhost"):
        assert _handshake(server, client, host)


def test_nobody_else_can_read_the_private_key(tmp_path):
    key = write_certificates(tmp_path).key

    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_each_start_has_an_authority_of_its_own(tmp_path):
    first = write_certificates(tmp_path).authority.read_bytes()

    assert write_certificates(tmp_path).authority.read_bytes() != first


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> bool:
    one, other = socket.socketpair()

    def serve():
        with server.wrap_socket(one, server_side=True) as served:
            served.sendall(b"hello")

    thread = threading.Thread(target=serve)
    thread.start()
    with client.wrap_socket(other, server_hostname=host) as connected:
        answer = connected.recv(5)
    thread.join(timeout=5)
    return answer == b"hello"
