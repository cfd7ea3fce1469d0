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
