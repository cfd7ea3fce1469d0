package report

import (
	"encoding/json"
	"math"
)

// Number is a figure that may be unknown: NaN, which JSON writes as null.
type Number float64

// Unmeasured is the unknown Number.
func Unmeasured() Number { return Number(math.NaN()) }

// Known reports whether n is a finite number.
func (n Number) Known() bool { return !math.IsNaN(float64(n)) && !math.IsInf(float64(n), 0) }

// MarshalJSON writes null for an unknown number.
func (n Number) MarshalJSON() ([]byte, error) {
	if !n.Known() {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON reads what MarshalJSON writes.
func (n *Number) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*n = Unmeasured()
		return nil
	}
	return json.Unmarshal(text, (*float64)(n))
}
