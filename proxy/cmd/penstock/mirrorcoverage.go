package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/penstock/penstock/proxy/admin"
)

// mostUncompared is the largest share, in percent, of sessions that may lack a part of their comparison before a
// condition on answers that does not hold counts as unknown.
const mostUncompared = 1

// uncompared says of which sessions too many were not compared to their end for a condition on answers to be known;
// empty: there are not too many. Sessions about which there is a condition of its own do not count: those that stopped
// comparing, or a reason for which mirrors ended. That condition has the bound then.
func uncompared(report *admin.MirrorReport, k *admin.Comparison, conditions []bound) string {
	own := func(figure string) bool {
		return slices.ContainsFunc(conditions, func(c bound) bool { return c.figure == figure })
	}
	var stopped, lost, ended int64
	for n := range maps.Values(k.Stopped) {
		stopped += n
	}
	begun := k.Sessions + k.Stopped[admin.StoppedBudget]
	if !own("stopped") && tooMany(stopped, begun) {
		return fmt.Sprintf("%d of %d sessions stopped comparing%s; a condition on stopped sets another bound than %d %%", stopped, begun, byReason(k.Stopped), mostUncompared)
	}
	reasons := make(map[string]int64)
	for reason, n := range report.Ended {
		ended += n
		if reason != "complete" && reason != "cut" && !own(reason) {
			reasons[reason] = n
			lost += n
		}
	}
	if tooMany(lost, ended) {
		return fmt.Sprintf("%d of %d mirrors ended before their answers were compared%s; a condition on the reason sets another bound than %d %%", lost, ended, byReason(reasons), mostUncompared)
	}
	return ""
}

func tooMany(n, all int64) bool { return n*100 > all*mostUncompared }
