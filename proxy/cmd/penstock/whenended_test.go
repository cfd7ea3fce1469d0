package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/admin"
)

// TestWhenEnded: the message before sessions end says when each of them does.
func TestWhenEnded(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		query admin.EndQuery
		n     int64
		want  string
	}{
		{admin.EndQuery{}, 0, ""},
		{admin.EndQuery{}, 12, ": none at once; each ends as soon as it has moved no byte for 10s, the last from its endpoint; one that has not been quiet within 30s goes on"},
		{admin.EndQuery{Quiet: time.Second, Grace: 2 * time.Minute, ThenReset: true}, 2, ": none at once; each ends as soon as it has moved no byte for 1s, the last from its endpoint; one that has not been quiet within 2m0s ends all the same"},
		{admin.EndQuery{Over: 5 * time.Minute}, 2, ": none at once; each ends as soon as its moment comes, at random within 5m0s, and it has moved no byte for 10s, the last from its endpoint; one that has not been quiet within 30s of it goes on"},
		{admin.EndQuery{Now: true}, 2, ": all end at once, in the middle of whatever they do"},
		{admin.EndQuery{Now: true, Over: time.Minute}, 2, ": each ends at a random moment within 1m0s, in the middle of whatever it does"},
	} {
		if got := whenEnded(&c.query, c.n); got != c.want {
			t.Errorf("%+v\n%q, want\n%q", c.query, got, c.want)
		}
	}
}

// TestLaneResults: the commands of the lane say how many sessions have come back, and how many are reset.
func TestLaneResults(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ changed, returned, flushed string }{
		{"0 0", ": no session had left user space", ": no session had left user space"},
		{"1 0", ": 1 session has come back to user space", ""},
		{"3 0", ": 3 sessions have come back to user space", ""},
		{"3 1", ": 3 sessions have come back to user space, and 1 is reset", ""},
		{"0 2", ": no session has come back to user space, and 2 are reset", ": 2 sessions are reset on both sides"},
		{"0 1", ": no session has come back to user space, and 1 is reset", ": 1 session is reset on both sides"},
	} {
		var l admin.LaneChanged
		if _, err := fmt.Sscan(c.changed, &l.Returned, &l.Reset); err != nil {
			t.Fatal(err)
		}
		if got := returnedOf(&l); got != c.returned {
			t.Errorf("%s: off: %q, want %q", c.changed, got, c.returned)
		}
		if got := flushedOf(&l); c.flushed != "" && got != c.flushed {
			t.Errorf("%s: flush: %q, want %q", c.changed, got, c.flushed)
		}
	}
}
