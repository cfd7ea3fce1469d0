package admin_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/admin"
)

func TestWithin(t *testing.T) {
	for _, test := range []struct {
		name        string
		before, now []int64
		ever        int64 // the longest time ever, in microseconds
		want        admin.Lag
	}{
		{"nothing yet", nil, nil, 1000, admin.Lag{}},
		{"all time", nil, []int64{0, 0, 5}, 1000, admin.Lag{P99: 4 * time.Microsecond, Longest: 4 * time.Microsecond, Count: 5}},
		{"the time between", []int64{10, 1, 3}, []int64{109, 1, 3, 1}, 1000, admin.Lag{P99: time.Microsecond, Longest: 8 * time.Microsecond, Count: 100}},
		{"one of 99 is more than a hundredth", []int64{10}, []int64{108, 0, 1}, 1000, admin.Lag{P99: 4 * time.Microsecond, Longest: 4 * time.Microsecond, Count: 99}},
		{"no turn between", []int64{1, 2}, []int64{1, 2}, 1000, admin.Lag{}},
		{"another process", []int64{9}, []int64{0, 2}, 1000, admin.Lag{P99: 2 * time.Microsecond, Longest: 2 * time.Microsecond, Count: 2}},
		{"another process with shorter turns", []int64{0, 0, 1}, []int64{4}, 1000, admin.Lag{P99: time.Microsecond, Longest: time.Microsecond, Count: 4}},
		{"no bound above the longest time ever", []int64{0, 9}, []int64{0, 9, 5}, 3, admin.Lag{P99: 3 * time.Microsecond, Longest: 3 * time.Microsecond, Count: 5}},
	} {
		if got := admin.Within(test.before, test.now, test.ever); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}
