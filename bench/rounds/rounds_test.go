package rounds

import (
	"fmt"
	"strings"
	"testing"
)

func TestTurns(t *testing.T) {
	var turns []string
	for round, i := range (&Setup{Rounds: 3}).Turns(2) {
		turns = append(turns, fmt.Sprint(round, i))
	}
	if got := strings.Join(turns, ", "); got != "1 0, 1 1, 2 1, 2 0, 3 0, 3 1" {
		t.Error(got)
	}
	for round := range (&Setup{Rounds: 3}).Turns(2) {
		if round > 1 {
			t.Fatal("the iteration continues after the loop has ended")
		}
		break
	}
}

func TestProgress(t *testing.T) {
	for want, p := range map[string]Progress{
		"round 1 of 4   haproxy          8.20 Gbit/s":                {Round: 1, Contestant: "haproxy", Result: "8.20 Gbit/s"},
		"round 2 of 4   1,300 B        Write            8.20 Gbit/s": {Round: 2, Case: "1,300 B", Contestant: "Write", Result: "8.20 Gbit/s"},
		"system calls   haproxy":                                     {Doing: "system calls", Contestant: "haproxy"},
	} {
		s := Setup{Rounds: 4, Watch: func(p Progress) {
			if got := p.String(); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}}
		s.Notify(p)
	}
	new(Setup).Notify(Progress{})
}
