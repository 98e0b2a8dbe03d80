"""A program as its writer's type checker sees it: `mypy --strict` has nothing to say, but where a comment says so."""

from typing import Any

from holdall import TLS, AsyncClient, Client, Markers, Position, TypedSerde, Written

client = Client(
    ["127.0.0.1:11211", ("::1", 11211)],
    serde=TypedSerde(),
    tls=TLS(ca_cert="ca.pem"),
    username="me",
    password="secret",
    window="adaptive",
)
stored: bool = client.set("k", b"v", expire=60, noreply=False)
value: Any = client.get("k", default=b"")
found: dict[str, Any] = client.get_many(["a", "b"])
by_bytes: dict[bytes, Any] = client.get_many([b"a"])
number: int | None = client.incr("n", 2)
failed: list[str] = client.set_many({"a": 1})
written: Written = client.write_marked("k", lambda marker: len(marker), Markers("remote:", 60))
place: Position = Position("lsn:0/16B3748")
written = client.write_marked_at("k", lambda: (17, place), Markers("remote:", 60))
query: str = place.reached_query
client.write_marked_at("k", lambda: 17, Markers("remote:", 60))  # type: ignore[arg-type,return-value]
counts: dict[str, int] | None = client.kept_deletes()
client.get(17)  # type: ignore[arg-type]
client.set("k", b"v", expire="soon")  # type: ignore[arg-type]


async def page() -> tuple[Any, ...]:
    async def query() -> str:
        return "row"

    async with AsyncClient("127.0.0.1:11211") as other:
        ok: bool = await other.set("k", "v")
        await other.get_or_load("row", query, expire=60)
        some: dict[str, Any] = await other.get_many(["a"])
        await other.delete(None)  # type: ignore[arg-type]
        return ok, some, await other.multi_get("a", "b")
