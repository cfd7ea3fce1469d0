package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/pprof"
	"strconv"
	"time"
)

// MaxProfile is the longest time, in seconds, that the CPU profile of a process is taken for.
const MaxProfile = 60

// ErrProfiling is wrapped by the error of a profile that is asked for while another one is taken.
var ErrProfiling = errors.New("another profile is being taken")

// profileBytes is a profile in the format of pprof, compressed.
type profileBytes []byte

// profile takes a CPU profile of this process: 100 samples for each second of CPU time
// (runtime/pprof). It ends early if its client goes.
func (s *Server) profile(ctx context.Context, a *arguments) (any, error) {
	if !s.profiling.TryLock() {
		return nil, ErrProfiling
	}
	defer s.profiling.Unlock()
	var out bytes.Buffer
	if err := pprof.StartCPUProfile(&out); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProfiling, err)
	}
	timer := time.NewTimer(time.Duration(a.seconds) * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	pprof.StopCPUProfile()
	return profileBytes(out.Bytes()), nil
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
