"""The steps of workers, and of what comes late or twice from those that were thought dead."""

from datetime import timedelta

from jobs.job import Finish
from jobs.outcomes import Requeued, Symptom
from jobs.states import BatchState
from jobs.store import batches, claims, finishes, services
from scheduler.permit import Kind, Refusal, Standing
from tests.model.house import LEASE_SECONDS, Ghost, House, ask_of, finish_of, nth
from tests.model.processes import Flight, Worker

DRAIN_SECONDS = 0.3


class WorkersAtWork(House):
    """Each step is one transaction, or one call of a script."""

    def take(self, n: int, *, again: bool) -> None:
        """A worker takes a message; `again`: the broker will deliver it once more."""
        worker = self.workers[n]
        if self.queue.tasks:
            task = self.queue.tasks[0] if again else self.queue.tasks.pop(0)
            self._return_waiting(worker)
            worker.batch = batches.work(worker.db, task.batch_id)
            assert (worker.batch.state, worker.batch.blocked) == self.known(task.batch_id)

    def look(self, n: int) -> None:
        """A worker looks how its batches stand, and stops what is over."""
        worker = self.workers[n]
        seen = {job.batch_id for job in worker.held} | ({worker.batch.id} if worker.batch else set())
        for batch_id in seen:
            work = batches.work(worker.db, batch_id)
            assert (work.state, work.blocked) == self.known(batch_id)
            if worker.batch and worker.batch.id == batch_id:
                worker.batch = work
            is_late = work.deadline_at is not None and work.deadline_at <= worker.db.now()
            for flight in worker.flights:
                if flight.job.batch_id == batch_id and (is_late or work.state is BatchState.CANCELLING):
                    is_cancelling = work.state is BatchState.CANCELLING
                    flight.withdraw(Symptom.CANCELLED if is_cancelling else Symptom.DEADLINE)

    def claim(self, n: int, limit: int) -> None:
        worker = self.workers[n]
        if worker.batch is None:
            return
        now = worker.db.now()
        expected = self.reference.claim(worker.batch.id, limit, now)
        got = claims.claim(worker.db, worker.batch.id, limit, worker.name, LEASE_SECONDS)
        assert [job.id for job in got] == expected
        for job in got:
            self.reference.took(job, now)
        worker.waiting += got

    def admit(self, n: int) -> bool:
        """A worker asks for a permit for the first job that waits; False when none was given."""
        worker = self.workers[n]
        if not worker.goes_on():
            self._return_waiting(worker)
        if not worker.waiting:
            return False
        job = worker.waiting[0]
        answer = self.permits.acquire(worker.ledger, Kind.BATCH, ask_of(job))
        if isinstance(answer, Refusal):
            return False
        worker.flights.append(Flight(worker.waiting.pop(0), answer))
        return True

    def first_token(self, n: int, which: int) -> None:
        worker = self.workers[n]
        flight = nth(worker.flights, which)
        if flight and self.permits.first_token(worker.ledger, flight.permit) is Standing.REVOKED:
            flight.withdraw(Symptom.WITHDRAWN)

    def land(self, n: int, which: int, symptom: Symptom | None) -> None:
        """A call ends: with an answer, with this symptom, or because it was withdrawn before."""
        worker = self.workers[n]
        if flight := nth(worker.flights, which):
            worker.flights.remove(flight)
            why = flight.withdrawn_for or symptom
            if not flight.is_lost:
                worker.unwritten.append(finish_of(flight.job, why))
            if flight.withdrawn_for:
                self.permits.drain(worker.ledger, flight.permit, DRAIN_SECONDS)
            else:
                if why is Symptom.OVERLOADED:
                    self.permits.pause(worker.ledger, 1.0)
                self.permits.release(worker.ledger, flight.permit)
            self.ghosts.append(Ghost(flight.job, flight.permit))

    def write(self, n: int, most: int, *, twice: bool = False) -> None:
        """A worker writes what has become of jobs; `twice`: the first answer of the database was lost."""
        worker = self.workers[n]
        group, worker.unwritten = worker.unwritten[:most], worker.unwritten[most:]
        self.write_finishes(worker.db, group)
        if twice:
            assert finishes.write(worker.db, group) == set()

    def renew_leases(self, n: int) -> None:
        worker = self.workers[n]
        held = worker.held
        tokens = {job.lease_token for job in held}
        expected = self.reference.renew(tokens, worker.db.now() + timedelta(seconds=LEASE_SECONDS))
        assert claims.renew(worker.db, tokens, LEASE_SECONDS) == expected
        worker.lose([job for job in held if not self.reference.is_held(job)])

    def renew_permits(self, n: int) -> None:
        worker = self.workers[n]
        standings = self.permits.renew(worker.ledger, [flight.permit for flight in worker.flights])
        for flight in worker.flights:
            if standings[flight.permit.token] is not Standing.HELD:
                flight.withdraw(Symptom.WITHDRAWN)

    def beat(self, n: int) -> None:
        worker = self.workers[n]
        detail = {"batch": worker.batch.id if worker.batch and worker.held else None}
        services.beat(worker.db, "worker", worker.name, "host", n, detail)

    def stop_worker(self, n: int) -> None:
        """It is asked to end: it puts back what it holds, and another begins."""
        worker = self.workers[n]
        for flight in list(worker.flights):
            flight.withdraw(Symptom.STOPPING)
            self.land(n, 0, None)
        self._return_waiting(worker)
        self.write_finishes(worker.db, worker.unwritten)
        services.leave(worker.db, "worker", worker.name)
        self.workers[n] = self.new_worker(n)

    def kill_worker(self, n: int) -> None:
        """It is gone with all it knew, and another begins."""
        worker = self.workers[n]
        self.ghosts += [Ghost(flight.job, flight.permit) for flight in worker.flights]
        self.ghosts += [Ghost(job) for job in [*worker.waiting, *(finish.job for finish in worker.unwritten)]]
        self.workers[n] = self.new_worker(n)

    # --- what comes late from one that was thought dead, or comes a second time

    def late_finish(self, which: int, symptom: Symptom | None) -> None:
        if ghost := nth(self.ghosts, which):
            self.write_finishes(self.person, [finish_of(ghost.job, symptom)])

    def late_renewal(self, which: int) -> None:
        if ghost := nth(self.ghosts, which):
            until = self.person.now() + timedelta(seconds=LEASE_SECONDS)
            expected = self.reference.renew({ghost.job.lease_token}, until)
            assert claims.renew(self.person, {ghost.job.lease_token}, LEASE_SECONDS) == expected

    def late_with_permit(self, which: int, verb: str) -> None:
        ghost = nth(self.ghosts, which)
        if ghost is None or ghost.permit is None:
            return
        match verb:
            case "release":
                self.permits.release(self.late, ghost.permit)
            case "drain":
                self.permits.drain(self.late, ghost.permit, DRAIN_SECONDS)
            case "renew":
                self.permits.renew(self.late, [ghost.permit])
            case "first token":
                self.permits.first_token(self.late, ghost.permit)

    # --- inside

    def _return_waiting(self, worker: Worker) -> None:
        worker.unwritten += [Finish(job, Requeued(keeps_place=True)) for job in worker.waiting]
        worker.waiting.clear()
