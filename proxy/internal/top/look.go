package top

import (
	"context"
	"time"

	"github.com/penstock/penstock/proxy/admin"
)

// A Source is the process that is looked at. [admin.Client] is one.
type Source interface {
	Status(ctx context.Context) (admin.Status, error)
	Why(ctx context.Context, q admin.WhyQuery) (admin.Why, error)
}

// A Look is a status, and the time at which it had come.
type Look struct {
	Status admin.Status
	At     time.Time
	Took   time.Duration // that the request took
}

// see asks for a status.
func see(ctx context.Context, s Source) (Look, error) {
	began := time.Now()
	status, err := s.Status(ctx)
	now := time.Now()
	return Look{Status: status, At: now, Took: now.Sub(began)}, err
}

// share is the part of the time, at most, for which a process answers the view: of a large configuration
// a status costs it tens of milliseconds.
const share = 4

// pause is the time until the next look.
func (l *Look) pause(interval time.Duration) time.Duration {
	return max(interval, (share-1)*l.Took)
}

// same reports whether two looks are at the same process.
func (l *Look) same(o *Look) bool {
	return l.Status.PID == o.Status.PID && l.Status.Started.Equal(o.Status.Started)
}
