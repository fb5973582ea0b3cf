"""Writes forged-*.pem: requests whose signatures a careless verifier believes. Run it here; it needs Python alone.

Before a request is written, such a verifier is played, so that it is refused for what its name says and for nothing else.
"""

import base64
import hashlib
import pathlib

ZOO = pathlib.Path(__file__).parent


def tlv(tag, *parts):
    content = b"".join(parts)
    length = len(content)
    if length < 0x80:
        return bytes([tag, length]) + content
    octets = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(octets)]) + octets + content


def integer(number):
    return tlv(0x02, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def key_file(name):
    lines = (ZOO / "../keys" / name).read_text().splitlines()
    return base64.b64decode("".join(line for line in lines if not line.startswith("-")))


def elements(der):
    """The contents of the elements that follow each other in `der`."""
    while der:
        length, start = der[1], 2
        if length >= 0x80:
            start = 2 + (length & 0x7F)
            length = int.from_bytes(der[2:start], "big")
        yield der[start : start + length]
        der = der[start + length :]


NULL = tlv(0x05)
RSA = tlv(0x06, bytes.fromhex("2a864886f70d010101"))
SHA256_WITH_RSA = tlv(0x30, tlv(0x06, bytes.fromhex("2a864886f70d01010b")), NULL)
ED25519 = tlv(0x30, tlv(0x06, bytes.fromhex("2b6570")))
SHA256 = tlv(0x06, bytes.fromhex("608648016503040201"))


def info(spki):
    name = tlv(0x30, tlv(0x06, bytes.fromhex("550403")), tlv(0x0C, b"web01.example.com"))
    return tlv(0x30, tlv(0x02, b"\0"), tlv(0x30, tlv(0x31, name)), spki, tlv(0xA0))


def write(name, signed, algorithm, signature):
    der = tlv(0x30, signed, algorithm, tlv(0x03, b"\0", signature))
    text = base64.encodebytes(der).decode().replace("\n", "")
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    label = "CERTIFICATE REQUEST"
    lines = [f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""]
    (ZOO / f"forged-{name}.pem").write_text("\n".join(lines))


def digest_info(message, *parameters):
    return tlv(0x30, tlv(0x30, SHA256, *parameters), tlv(0x04, hashlib.sha256(message).digest()))


def rsa():
    private = next(elements(list(elements(next(elements(key_file("rsa2048a.pem")))))[2]))
    modulus, f4, exponent = [int.from_bytes(part, "big") for part in elements(private)][1:4]

    def signed(e):
        key = tlv(0x30, integer(modulus), integer(e))
        return info(tlv(0x30, tlv(0x30, RSA, NULL), tlv(0x03, b"\0", key)))

    def with_key(name, message, block):
        assert len(block) == 256
        signature = pow(int.from_bytes(block, "big"), exponent, modulus)
        assert pow(signature, f4, modulus).to_bytes(256, "big") == block
        write(name, message, SHA256_WITH_RSA, signature.to_bytes(256, "big"))

    def padded(payload):
        return b"\0\1" + b"\xff" * (253 - len(payload)) + b"\0" + payload

    message = signed(f4)
    with_key("rsa-without-null", message, padded(digest_info(message)))
    with_key("rsa-trailing", message, padded(digest_info(message, NULL) + b"\0" * 64))
    with_key("rsa-odd-parameters", message, padded(digest_info(message, tlv(0x04, b"x" * 64))))

    # Bleichenbacher 2006: nobody has the private half. The cube is what was padded, and rubbish.
    message = signed(3)
    head = b"\0\1" + b"\xff" * 8 + b"\0" + digest_info(message, NULL)
    cube = int.from_bytes(head.ljust(256, b"\0"), "big")
    low, high = 0, 1 << 700
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if middle**3 < cube else (low, middle)
    assert (low**3).to_bytes(256, "big").startswith(head) and low**3 < modulus
    write("rsa-cube-root", message, SHA256_WITH_RSA, low.to_bytes(256, "big"))


P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P


def add(a, b):
    (x1, y1), (x2, y2) = a, b
    product = D * x1 * x2 * y1 * y2
    x = (x1 * y2 + x2 * y1) * pow(1 + product, P - 2, P) % P
    y = (y1 * y2 + x1 * x2) * pow(1 - product, P - 2, P) % P
    return x, y


def times(number, point):
    result = (0, 1)
    while number:
        if number & 1:
            result = add(result, point)
        point, number = add(point, point), number >> 1
    return result


def decode(octets):
    number = int.from_bytes(octets, "little")
    sign, y = number >> 255, number % 2**255
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    assert (x * x - square) % P == 0
    return (x if x % 2 == sign else -x % P), y % P


def ed25519():
    seed = key_file("ed25519.pem")[-32:]
    public = key_file("ed25519.pub.pem")[-32:]
    secret = bytearray(hashlib.sha512(seed).digest()[:32])
    secret[0] &= 248
    secret[31] = secret[31] & 63 | 64
    secret = int.from_bytes(secret, "little")
    base = decode((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))
    key = times(secret, base)
    assert decode(public) == key
    message = info(tlv(0x30, ED25519, tlv(0x03, b"\0", public)))

    # The commitment is nothing, so the answer is that to the challenge alone.
    for name, commitment, cofactor in [
        # Only a verifier that multiplies by the cofactor does not see the point of order eight.
        ("order-eight", bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), 8),
        # The neutral point, but its `y` is not below the prime.
        ("not-canonical", (P + 1).to_bytes(32, "little"), 1),
    ]:
        challenge = int.from_bytes(hashlib.sha512(commitment + public + message).digest(), "little") % L
        answer = challenge * secret % L
        left = times(cofactor * answer, base)
        right = times(cofactor, add(decode(commitment), times(challenge, key)))
        assert left == right
        write(f"ed25519-{name}", message, ED25519, commitment + answer.to_bytes(32, "little"))


rsa()
ed25519()
