package pool_test

import "testing"

func TestZZ(t *testing.T) {
	c := newPenstock(t, 8192).(*penstock)
	x := newCrossing(c, 1)
	for range 10 {
		s := x.round(8000)
		t.Logf("%v/op %+v", s.time/8000, c.p.Stats())
	}
	for range 300 {
		x.round(8000)
	}
		s := x.round(8000)
		t.Logf("%v/op %+v", s.time/8000, c.p.Stats())
}
