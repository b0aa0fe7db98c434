#!/usr/bin/env python3
"""Use Redy caches from Python, through `redykv cache proxy`, with the standard library only.

    example.py URL demo
    example.py URL create CAPACITY
    example.py URL write ID ADDRESS TEXT
    example.py URL read ID ADDRESS LENGTH
    example.py URL delete ID
"""

import argparse
import http.client
import json
import pathlib
import ssl
import sys
import time
import urllib.parse


class Error(Exception):
    """An error of the proxy. code is for programs, such as region_unavailable."""

    def __init__(self, status, code, message):
        super().__init__(f"{code}: {message}")
        self.status, self.code = status, code


class Proxy:
    """One connection to a proxy, for one thread."""

    def __init__(self, url, token=None, ca=None, patience=0):
        """patience is for how many seconds a request is repeated while the answer is 503."""
        at = urllib.parse.urlsplit(url)
        if at.scheme == "https":
            context = ssl.create_default_context(cafile=ca)
            self.connection = http.client.HTTPSConnection(at.hostname, at.port, context=context)
        else:
            self.connection = http.client.HTTPConnection(at.hostname, at.port)
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.patience = patience

    def request(self, method, path, body=None, **headers):
        """Return the headers and the body of an answer."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        end = time.monotonic() + self.patience
        while True:
            self.connection.request(method, path, body, {**self.headers, **headers})
            response = self.connection.getresponse()
            content = response.read()  # raises IncompleteRead if memory is lost meanwhile
            if response.status < 300:
                return response.headers, content
            error = json.loads(content)["error"]
            pause = response.headers.get("Retry-After")
            if pause is None or time.monotonic() > end:
                raise Error(response.status, error["code"], error["message"])
            time.sleep(int(pause))

    def create(self, capacity, **fields):
        """Create a cache. fields are further ones of the request, such as slo={...}."""
        body = json.dumps({"capacity": capacity, **fields})
        _, content = self.request("POST", "/v1/caches", body, Content_Type="application/json")
        return Cache(self, json.loads(content)["id"])


class Cache:
    """A contiguous space of bytes in the memory of other machines."""

    def __init__(self, proxy, id):
        self.proxy, self.id = proxy, id
        self.path = "/v1/caches/" + urllib.parse.quote(id, safe="")

    def describe(self):
        return json.loads(self.proxy.request("GET", self.path)[1])

    def write(self, address, data):
        """Store data. Return how often its memory had been lost before."""
        last = address + len(data) - 1
        headers, _ = self.proxy.request("PUT", self.path + "/bytes", data, Content_Range=f"bytes {address}-{last}/*")
        return int(headers["Redykv-Losses"])

    def read(self, address, length):
        """Return the bytes, and how often their memory has been lost.

        They are what was written if that number is the same as that of the write."""
        headers, data = self.proxy.request("GET", self.path + "/bytes", Range=f"bytes={address}-{address + length - 1}")
        return data, int(headers["Redykv-Losses"])

    def delete(self):
        self.proxy.request("DELETE", self.path)


def demo(proxy):
    cache = proxy.create(4 << 20)
    try:
        print("capacity", cache.describe()["capacity"])
        losses = cache.write(1000, b"hello")
        data, now = cache.read(1000, 5)
        print("read", data, "as written" if now == losses else "lost")
        large = bytes(range(256)) * (2 << 12)  # 2 MiB, which the proxy passes on in pieces
        cache.write(2 << 20, large)
        print("large", cache.read(2 << 20, len(large))[0] == large)
        try:
            cache.write(4 << 20, b"beyond")
        except Error as error:
            print(error.status, error.code)
    finally:
        cache.delete()
    try:
        cache.read(0, 1)
    except Error as error:
        print(error.status, error.code)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--token", metavar="FILE", type=pathlib.Path, help="file with a token for the proxy")
    parser.add_argument("--ca", metavar="FILE", help="certificates that verify the proxy, in PEM")
    parser.add_argument("--patience", metavar="SECONDS", type=float, default=0, help="repeat requests while the answer is 503")
    parser.add_argument("url")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("demo")
    commands.add_parser("create").add_argument("capacity", type=int)
    for name, last, kind in ("write", "text", str), ("read", "length", int), ("delete", None, None):
        command = commands.add_parser(name)
        command.add_argument("id")
        if last:
            command.add_argument("address", type=int)
            command.add_argument(last, type=kind)
    given = parser.parse_args()
    token = given.token.read_text().strip() if given.token else None
    proxy = Proxy(given.url, token, given.ca, given.patience)
    if given.command == "demo":
        demo(proxy)
    elif given.command == "create":
        print(proxy.create(given.capacity).id)
    elif given.command == "write":
        print("losses", Cache(proxy, given.id).write(given.address, given.text.encode()))
    elif given.command == "read":
        print("{!r} losses {}".format(*Cache(proxy, given.id).read(given.address, given.length)))
    else:
        Cache(proxy, given.id).delete()


if __name__ == "__main__":
    try:
        main()
    except Error as error:
        sys.exit(str(error))
