"""What pools showed between two questions."""

from scheduler.capacity import Amount
from scheduler.load_meter import LoadMeter, MeanLoad
from scheduler.pool_reading import PoolReading
from tests.support.readings import reading, snapshot


def shown(slots: int, chat: int = 0, name: str = "gpu") -> PoolReading:
    return reading(snapshot(batch=Amount(slots, slots * 100), interactive=Amount(chat, chat * 50)), name=name)


def test_the_mean_of_each_pool_since_the_last_question() -> None:
    meter = LoadMeter()
    meter.add([shown(2, chat=4), shown(8, name="deep")])
    meter.add([shown(4, chat=8), shown(8, name="deep")])
    found = meter.take()
    assert (found["gpu"].held, found["gpu"].chat) == (Amount(3, 300), Amount(6, 300))
    assert found["deep"].held == Amount(8, 800)
    meter.add([shown(7)])
    assert meter.take()["gpu"].held == Amount(7, 700)


def test_of_what_nobody_read_nothing_is_said() -> None:
    assert LoadMeter().take() == {}


def test_the_mean_rounds_to_whole_slots() -> None:
    one, none = Amount(1, 3), Amount()
    assert MeanLoad.of([(one, one, one), (none, one, none), (one, one, none)]) == MeanLoad(
        Amount(1, 2), Amount(1, 3), Amount(0, 1)
    )
