# Uses users, keyspace notifications and tracking by redis-py. The argument is the server's port.
import sys

import redis

port = int(sys.argv[1])


def client(**options):
    return redis.Redis(port=port, single_connection_client=True, decode_responses=True, **options)


def message(of, types=("message", "pmessage")):
    for _ in range(60):
        got = of.get_message(timeout=1)
        if got and got["type"] in types:
            return got
    raise AssertionError("no message")


def subscribed(of):
    message(of, ("subscribe", "psubscribe"))


admin = client()
admin.acl_setuser("alice", enabled=True, passwords=["+secret"], keys=["cache:*"], categories=["+@all"], commands=["-flushall"])
user = admin.acl_getuser("alice")
assert "on" in user["flags"] and user["enabled"], user
assert "alice" in admin.acl_users() and len(admin.acl_list()) == 2
alice = client(username="alice", password="secret")
alice.set("cache:1", "v")
try:
    alice.get("other")
    raise AssertionError("alice may read any key")
except redis.exceptions.NoPermissionError:
    pass
log = admin.acl_log()
assert log[0]["reason"] == "key" and log[0]["object"] == "other" and log[0]["username"] == "alice", log
assert admin.acl_deluser("alice") == 1 and len(admin.acl_genpass()) == 64

admin.config_set("notify-keyspace-events", "KEA")
events = client().pubsub()
events.psubscribe("__keyevent@*__:*")
subscribed(events)
admin.set("k", "v", px=1)
got = [message(events) for _ in range(3)]
assert [m["channel"].split(":")[1] for m in got] == ["set", "expire", "expired"], got
assert all(m["data"] == "k" for m in got), got
events.close()

invalid = client().pubsub()
invalid.execute_command("CLIENT", "ID")
id = invalid.connection.read_response()
invalid.subscribe("__redis__:invalidate")
subscribed(invalid)
reader = client()
assert reader.execute_command("CLIENT", "TRACKING", "ON", "REDIRECT", id) == "OK"
reader.mget("a", "b")
admin.set("b", "w")
assert message(invalid)["data"] == ["b"]
assert reader.client_getredir() == id and reader.client_trackinginfo()[0] == "flags"
admin.flushall()
assert message(invalid)["data"] is None

assert admin.client_pause(1) and admin.client_unpause()
admin.setbit("bits", 7, 1)
assert admin.bitcount("bits") == 1 and admin.bitpos("bits", 1) == 7
assert admin.bitfield("bits").set("u8", 0, 200).incrby("u8", 0, 100, "SAT").execute() == [1, 255]
admin.mset({"x": "ohmytext", "y": "mynewtext"})
assert admin.lcs("x", "y") == "mytext"
print("passed")
