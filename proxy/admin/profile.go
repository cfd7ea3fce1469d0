package admin

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime/pprof"
	"strconv"
	"time"

	"github.com/penstock/penstock/proxy/internal/admission"
)

// MaxProfile is the longest time, in seconds, that the CPU profile of a process is taken for.
const MaxProfile = 60

// profileBytes is a profile in the format of pprof, compressed.
type profileBytes []byte

// profile takes a CPU profile of this process: 100 samples for each second of CPU time
// (runtime/pprof). It ends early if its client goes.
func (s *Server) profile(ctx context.Context, a *arguments) (any, error) {
	s.profiling.Lock() // one that has lost its place to this one ends at once
	defer s.profiling.Unlock()
	var out bytes.Buffer
	stop, err := s.sample(&out)
	if err != nil {
		return nil, fmt.Errorf("another profile is being taken: %w: %w", admission.ErrBusy, err)
	}
	timer := time.NewTimer(time.Duration(a.seconds) * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	stop()
	return profileBytes(out.Bytes()), nil
}

// sampleCPU begins a CPU profile, which stop ends.
func sampleCPU(to io.Writer) (stop func(), err error) {
	return pprof.StopCPUProfile, pprof.StartCPUProfile(to)
}

func profileTime(a *arguments, values []string) error {
	if err := number(&a.seconds, 1, values); err != nil {
		return err
	}
	if a.seconds > MaxProfile {
		return fmt.Errorf("%d: write at most %d", a.seconds, MaxProfile)
	}
	return nil
}

// Profile returns a CPU profile of the process, taken for so many seconds, from 1 to [MaxProfile],
// in the format of pprof.
func (c *Client) Profile(ctx context.Context, seconds int) (profile []byte, err error) {
	return profile, c.do(ctx, http.MethodGet, "/v1/profile", url.Values{"seconds": {strconv.Itoa(seconds)}}, &profile)
}
