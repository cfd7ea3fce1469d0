package health_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
)

// BenchmarkRoundOfIdle is a round of endpoints without any reports.
func BenchmarkRoundOfIdle(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			all := make([]health.Watched, n)
			for i := range all {
				all[i].Answers = new(health.Answers)
			}
			u := health.NewUnanswered(b.Context(), func(func()) {})
			cfg := &health.UnansweredConfig{After: 5 * time.Second}
			now := int64(time.Hour)
			for b.Loop() {
				now += int64(time.Second) / 2
				u.Round(now, cfg, all, false)
			}
		})
	}
}
