package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/admin"
)

// answerOf is the mean time to the first answer of an endpoint: of the sessions that had it since the look before, or
// else of all. 0: there was none.
func answerOf(was, now *admin.Endpoint) time.Duration {
	a := now.Answers
	if a == nil || a.Made == 0 {
		return 0
	}
	n, us := a.Made, a.SumUs
	if was != nil && was.Answers != nil && was.Answers.Made < n && was.Answers.SumUs <= us {
		n, us = n-was.Answers.Made, us-was.Answers.SumUs
	}
	return time.Duration(us/n) * time.Microsecond
}

// waitsOf is the share of the time of ended sessions that was lost to an endpoint and the way to it, by their verdicts:
// of those that have ended since the look before, or else of all.
func waitsOf(was, now *admin.Endpoint) cell {
	lost, all := now.Waited()
	if was != nil {
		if lostBefore, before := was.Waited(); before < all && lostBefore <= lost {
			lost, all = lost-lostBefore, all-before
		}
	}
	if all == 0 {
		return figure("-", -1)
	}
	share := lost.Seconds() / all.Seconds()
	return figure(fmt.Sprintf("%.0f %%", 100*share), share)
}

// causeOf is the cause of an endpoint's state in words, or its last failure, and the changes of it by hand.
func causeOf(ep *admin.Endpoint) string {
	hand := strings.Join(ep.ByHand, ", ")
	why := stateCause(ep)
	switch {
	case why != "" && hand != "":
		return why + "; " + hand
	case why == "" && hand == "" && ep.Weight == 0 && ep.State == admin.Up:
		return "weight 0: it gets no clients"
	}
	return why + hand
}

// stateCause is causeOf without the changes by hand.
func stateCause(ep *admin.Endpoint) string {
	switch {
	case ep.Why != "":
		return ep.Why
	case ep.BreakerWhy != "":
		return "breaker: " + ep.BreakerWhy
	case ep.Unanswered > 0:
		return fmt.Sprintf("%d clients wait for an answer, for up to %v", ep.Unanswered, short(time.Duration(ep.UnansweredMs)*time.Millisecond))
	case ep.LastFailure != nil && !ep.LastFailure.Over:
		return ep.LastFailure.Cause
	}
	return ""
}
