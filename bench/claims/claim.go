package claims

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// A Claim is a published claim.
type Claim struct {
	ID        string // its name on the command line and in docs/claims.md
	Title     string // its subject, in a few words
	Published string // the figures
	Measures  string // the quantity of the figures, and their system
	Source    string // where they were published
	Command   string // the command that repeats it here
	Honest    string // its errors, how it misleads, or its omissions

	// Refused is why nothing of it will be built; empty if it is, or may be.
	Refused string

	measure func(context.Context) (Result, error) // nil: nothing to measure yet
}

// noCommand is the Command of a claim that nothing here repeats yet.
const noCommand = "none yet"

// Measured reports whether Measure has figures for the claim.
func (c *Claim) Measured() bool { return c.measure != nil }

// Measure repeats the claim on this machine, in a few seconds at most, most of
// which keep all processors busy. It fails only if the machine cannot do it, or
// with the cause of ctx.
func (c *Claim) Measure(ctx context.Context) (Result, error) {
	if c.measure == nil {
		return Result{ID: c.ID}, nil
	}
	err := context.Cause(ctx)
	var r Result
	if err == nil {
		r, err = c.measure(ctx)
	}
	r.ID = c.ID
	switch {
	case err == nil:
		return r, nil
	case ctx.Err() != nil: // whatever broke for it
		err = context.Cause(ctx)
	}
	return r, fmt.Errorf("claim %s: %w", c.ID, err)
}

// All returns every claim, in the order of docs/claims.md.
func All() []*Claim {
	return slices.Concat(pipeClaims, poolClaims, trafficClaims, callClaims, loopClaims, balancerClaims, laterClaims)
}

// Find returns the claims of those names, all of them if there is none. The
// error names the claims there are.
func Find(ids []string) ([]*Claim, error) {
	all := All()
	if len(ids) == 0 {
		return all, nil
	}
	var found []*Claim
	for _, id := range ids {
		i := slices.IndexFunc(all, func(c *Claim) bool { return c.ID == id })
		if i < 0 {
			return nil, fmt.Errorf("no claim %q: write one of %s", id, names(all))
		}
		found = append(found, all[i])
	}
	return found, nil
}

func names(all []*Claim) string {
	var ids []string
	for _, c := range all {
		ids = append(ids, c.ID)
	}
	return strings.Join(ids, ", ")
}
