package soak

import (
	"reflect"
	"testing"
)

func TestTheSameNumberDoesTheSame(t *testing.T) {
	differ := 0
	for n := range uint32(2000) {
		i := id{n%2 + 1, n}
		p := draw(42, i, longestIdle)
		if !reflect.DeepEqual(p, draw(42, i, longestIdle)) {
			t.Fatalf("%v is drawn differently the second time", i)
		}
		if p.String() != draw(43, i, longestIdle).String() {
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
