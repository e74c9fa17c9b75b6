"""The watch that the night's tests rely on sees what must not be there."""

import base64
import json

from tests.support.redis_watch import RedisWatch, without_ttl
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until

SECRET = "zanzibar"


def test_a_key_that_stays_for_ever_is_found(valkey: ValkeyServer) -> None:
    with RedisWatch(valkey.url) as watch, valkey.client() as client:
        client.set("tickets-batch:{gpu}:limit", "1", ex=60)
        client.hset("tickets-batch:{gpu}:epoch", "id", "1")
        client.rpush("tickets-batch:celery:tickets-batch", "message")
        assert without_ttl(watch.keys()) == []
        client.set("tickets-batch:{gpu}:totals", "1")
        client.sadd("tickets-batch:celery:other", "1")
        assert sorted(without_ttl(watch.keys())) == ["tickets-batch:celery:other", "tickets-batch:{gpu}:totals"]


def test_a_text_is_found_in_every_kind_of_key(valkey: ValkeyServer) -> None:
    with RedisWatch(valkey.url) as watch, valkey.client() as client:
        client.set("string", f"a {SECRET}")
        client.rpush("list", "a", SECRET)
        client.sadd("set", SECRET)
        client.hset("hash", SECRET, "1")
        client.zadd("zset", {SECRET: 1})
        client.set("clean", "nothing")
        keys = watch.keys()
    assert {key.name for key in keys if SECRET.encode() in key.content} == {"string", "list", "set", "hash", "zset"}


def test_what_celery_would_wrap_is_found_and_heard(valkey: ValkeyServer) -> None:
    body = base64.b64encode(json.dumps([[f"Where is {SECRET}?"], {}, {}]).encode()).decode()
    with RedisWatch(valkey.url) as watch, valkey.client() as client:
        client.lpush("queue", json.dumps({"body": body}))
        (key,) = watch.keys()
        assert SECRET.encode() in key.content
        wait_until(lambda: b"LPUSH" in watch.heard.upper(), "the command to be heard")
        assert SECRET.encode() in watch.heard
