package claims

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Record is a run: the results of some claims, and where they come from.
type Record struct {
	Date    string   `json:"date"` // year-month-day, UTC
	Machine string   `json:"machine"`
	Results []Result `json:"results"`
}

// Run measures claims one after the other. It calls begin before each that has something to
// measure; machine is the Record's description of the machine. On failure the Record holds the
// results until then.
func Run(ctx context.Context, claims []*Claim, machine string, begin func(*Claim)) (*Record, error) {
	rec := &Record{Date: time.Now().UTC().Format(time.DateOnly), Machine: machine}
	for _, c := range claims {
		if !c.Measured() {
			continue
		}
		begin(c)
		runtime.GC() // garbage of the one before
		r, err := c.Measure(ctx)
		if err != nil {
			return rec, err
		}
		rec.Results = append(rec.Results, r)
	}
	return rec, nil
}

// Read reads a Record as Write writes it.
func Read(r io.Reader) (*Record, error) {
	rec := new(Record)
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(rec); err != nil {
		return nil, fmt.Errorf("a record of claims: %w", err)
	}
	return rec, nil
}

// Write writes the Record as JSON.
func (rec *Record) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "\t")
	return e.Encode(rec)
}

// Of returns the record's figures for a claim, or why there are none, in words; never nothing.
func (rec *Record) Of(c *Claim) string {
	var parts []string
	if i := slices.IndexFunc(rec.Results, func(r Result) bool { return r.ID == c.ID }); i >= 0 {
		parts = append(parts, rec.Results[i].String())
	}
	switch {
	case len(parts) > 0:
	case c.Refused != "":
		parts = append(parts, "refused: "+c.Refused)
	case c.Measured():
		parts = append(parts, "not measured")
	case c.Command != noCommand:
		parts = append(parts, "measured by "+c.Command)
	}
	return strings.Join(parts, "; ")
}
