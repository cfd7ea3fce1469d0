package soak

import (
	"reflect"
	"testing"
)

func TestTheSameNumberDoesTheSame(t *testing.T) {
	differ := 0
	for n := range uint32(2000) {
		i := id{n%2 + 1, n}
		p := draw(42, i, longestIdle, n%3 == 0)
		if !reflect.DeepEqual(p, draw(42, i, longestIdle, n%3 == 0)) {
			t.Fatalf("%v is drawn differently the second time", i)
		}
		if p.String() != draw(43, i, longestIdle, n%3 == 0).String() {
			differ++
		}
		if !rough(i.round) && !p.silent && !p.exact() {
			t.Errorf("%v is torn down in round %d: %v", i, i.round, p)
		}
		for r, part := range p.parts {
			var sum int64
			for _, s := range part.sends {
				sum += s.n
				if s.n > 0 && s.piece < 1 || s.await > p.parts[1-r].total {
					t.Errorf("%v: %+v of %v", i, s, p)
				}
			}
			if sum != part.total || !p.silent && part.read.size < 1 {
				t.Errorf("%v: %d bytes, %+v", i, sum, part)
			}
		}
	}
	if differ < 1500 {
		t.Errorf("another seed changes only %d of 2000", differ)
	}
}

// TestConversation: messages are small, and each turn waits for all of the other end's.
func TestConversation(t *testing.T) {
	for n := range uint32(200) {
		i := id{1, n}
		d := &drawing{Rand: i.random(42), longest: longestIdle, plan: &plan{id: i}}
		d.sockets()
		d.conversation()
		for r, p := range d.plan.parts {
			other := d.plan.parts[1-r].total
			if len(p.sends) < fewestTurns && d.left[r] > 0 || len(p.sends) > mostTurns*turnMessages {
				t.Errorf("%v: %d messages", i, len(p.sends))
			}
			for _, s := range p.sends {
				if s.n < 1 || s.n > largeMessage || s.n >= smallMessage && s.n < largeMessage && d.left[r] > 0 || int(s.n) != s.piece || s.await > other {
					t.Errorf("%v: %+v, %d bytes of the other end", i, s, other)
				}
			}
		}
	}
}

// TestArrived: a message that has not come whole does not count.
func TestArrived(t *testing.T) {
	p := part{sends: []send{{n: 10}, {pause: 1}, {n: 5}, {n: 1}}}
	for received, want := range map[int64]int64{0: 0, 9: 0, 10: 1, 14: 1, 15: 2, 16: 3, 20: 3} {
		if got := p.arrived(received); got != want {
			t.Errorf("%d bytes: %d, want %d", received, got, want)
		}
	}
}

func TestGreetings(t *testing.T) {
	for _, i := range []id{{}, {1, 2}, {1 << 31, 1<<32 - 1}} {
		if got, err := parseGreeting(i.greet()); got != i || err != nil {
			t.Errorf("%v: %v, %v", i, got, err)
		}
	}
	if _, err := parseGreeting([]byte("GET / HTTP/1")); err == nil {
		t.Error("another client's bytes are read as a greeting")
	}
}
