package admin_test

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/penstock/penstock/proxy/admin"
)

// TestProfile: a profile is one of pprof, one is taken at a time, and its time has bounds.
func TestProfile(t *testing.T) {
	r := newRig(t, "")
	type answer struct {
		profile []byte
		err     error
	}
	answers := make(chan answer, 2)
	for range 2 {
		go func() {
			p, err := r.Profile(t.Context(), 1)
			answers <- answer{p, err}
		}()
	}
	one, other := <-answers, <-answers
	if one.err == nil {
		one, other = other, one
	}
	refused(t, one.err, http.StatusServiceUnavailable, "another profile is being taken")
	if other.err != nil || !bytes.HasPrefix(other.profile, []byte{0x1f, 0x8b}) {
		t.Errorf("%v, %d bytes, want a compressed profile", other.err, len(other.profile))
	}
	for _, seconds := range []int{0, -1, admin.MaxProfile + 1} {
		_, err := r.Profile(t.Context(), seconds)
		refused(t, err, http.StatusBadRequest, "seconds: ")
	}
}
