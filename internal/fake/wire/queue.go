package wire

import "sync"

// A Queue holds faults of one form until their requests come. The zero value is empty. It is safe for concurrent use.
type Queue[F any] struct {
	mu      sync.Mutex
	waiting map[string][]*turn[F]
	healing chan struct{}
}

// A turn is a fault with how many requests it still hits (negative: all) and how many it lets through first.
type turn[F any] struct {
	fault       F
	times, skip int
}

// Add queues a fault for an operation, or for any: "". It hits so many requests (0: one; negative: all) after it has let
// others through.
func (q *Queue[F]) Add(operation string, f F, times, skip int) {
	if times == 0 {
		times = 1
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting == nil {
		q.waiting = map[string][]*turn[F]{}
	}
	q.waiting[operation] = append(q.waiting[operation], &turn[F]{f, times, skip})
}

// Take returns the fault of one request; the zero value if there is none.
func (q *Queue[F]) Take(operation string) F {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, name := range []string{operation, ""} {
		queue := q.waiting[name]
		if len(queue) == 0 {
			continue
		}
		t := queue[0]
		if t.skip > 0 {
			t.skip--
			continue
		}
		if t.times > 0 {
			if t.times--; t.times == 0 {
				q.waiting[name] = queue[1:]
			}
		}
		return t.fault
	}
	var none F
	return none
}

// Heal drops all faults that wait and lets go what hangs in those that were taken. It leaves the faults of the state
// machine.
func (q *Queue[F]) Heal() {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.waiting)
	if q.healing != nil {
		close(q.healing)
		q.healing = nil
	}
}

// Healed is closed by the next Heal.
func (q *Queue[F]) Healed() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.healing == nil {
		q.healing = make(chan struct{})
	}
	return q.healing
}
