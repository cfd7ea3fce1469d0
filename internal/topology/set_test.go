package topology

import (
	"slices"
	"testing"
)

func TestSet(t *testing.T) {
	for text, want := range map[string]struct {
		s    Set
		text string
	}{
		"":              {nil, ""},
		"0\n":           {Set{0}, "0"},
		"0-3":           {Set{0, 1, 2, 3}, "0-3"},
		"8,0-2,2":       {Set{0, 1, 2, 8}, "0-2,8"},
		"1,3,5-6,8191 ": {Set{1, 3, 5, 6, 8191}, "1,3,5-6,8191"},
	} {
		s, err := ParseSet(text)
		if err != nil || !slices.Equal(s, want.s) || s.String() != want.text {
			t.Errorf("%q: %v (%s), %v", text, []int(s), s, err)
		}
	}
	for _, text := range []string{"-1", "1-", "3-1", "a", "0,", ",", "0-8192", "99999999999999999999", "+1", "0x1", "1 2"} {
		if s, err := ParseSet(text); err == nil {
			t.Errorf("%q is %v", text, s)
		}
	}
	a, b := NewSet(3, 1, 2, 1), NewSet(2, 3, 9)
	if got := a.Without(b); !slices.Equal(got, Set{1}) {
		t.Errorf("without: %v", got)
	}
	if got := a.And(b); !slices.Equal(got, Set{2, 3}) || a.Has(0) || !a.Has(1) {
		t.Errorf("and: %v", got)
	}
}
