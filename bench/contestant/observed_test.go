package contestant_test

import (
	"testing"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/observed"
)

func TestObservedContestantsTellOfTheirPauses(t *testing.T) {
	for _, form := range observed.Forms() {
		t.Run(string(form), func(t *testing.T) {
			s := setting(t)
			c, err := contestant.Observed(form, "a proxy", 10, "GOGC=50").Start(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Kill)
			const n = 100_000
			carry(t, s, c, n)
			a, err := c.Settle(t.Context())
			switch {
			case err != nil:
				t.Error(err)
			case (a != nil) != (form == observed.Penstock):
				t.Errorf("account: %+v", a)
			case a != nil && (a.ClientToEndpoint != n || a.EndpointToClient != n):
				t.Errorf("account: %+v", a)
			}
			if p, err := c.Pauses(t.Context(), true); err != nil || p.Collections < 1 || p.Longest <= 0 {
				t.Errorf("pauses: %+v, %v", p, err)
			}
			if err := c.Stop(forever); err != nil {
				t.Error(err)
			}
		})
	}
}
