"""CURVE key pairs, with which ZeroMQ encrypts connections and identifies peers."""

import zmq
from zmq.utils import z85

# A public key and its secret key, 32 bytes each.
KeyPair = tuple[bytes, bytes]


def new_pair() -> KeyPair:
    """A new key pair."""
    public, secret = zmq.curve_keypair()
    return z85.decode(public), z85.decode(secret)
