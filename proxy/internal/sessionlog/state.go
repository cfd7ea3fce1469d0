package sessionlog

import (
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/relay"
)

// state returns HAProxy's termination state, two letters: what ended the session first, and how far the session had
// come (HAProxy, Configuration Manual, 8.5).
func (e *Event) state() string {
	if e.Kind != End {
		return "--"
	}
	switch e.Outcome {
	case record.Joined:
		return e.joinedState()
	case record.Left:
		return "C" + e.stage()
	case record.Canceled:
		return "K" + e.stage()
	case record.Responded:
		return "LR"
	case record.CancelSent:
		return "--"
	case record.CancelUnsent:
		return "SC"
	}
	return e.refusedState()
}

func (e *Event) joinedState() string {
	culprit := ""
	switch e.Result.Culprit {
	case relay.SideA:
		culprit = "CD"
	case relay.SideB:
		culprit = "SD"
	}
	switch e.Result.Reason {
	case relay.ReasonEOF:
		return "--"
	case relay.ReasonReset, relay.ReasonError:
		if culprit == "SD" && e.Result.First == relay.SideB { // its answer was complete; HAProxy looks no further
			return "--"
		}
		if culprit != "" {
			return culprit
		}
		return "ID"
	case relay.ReasonFirstByte:
		return "sD"
	case relay.ReasonHalfClose:
		if e.Result.First == relay.SideA {
			return "sD"
		}
		return "cD"
	case relay.ReasonIdle:
		if e.ClientFirst != 0 && e.EndpointFirst == 0 { // the endpoint was asked, and has not answered
			return "sD"
		}
		return "cD"
	case relay.ReasonCanceled:
		return "KD"
	}
	return "PD"
}

// stage says how far a client without an endpoint has come.
func (e *Event) stage() string {
	switch {
	case e.Connecting != 0:
		return "C"
	case e.Waits > 0:
		return "Q"
	}
	return "R"
}

func (e *Event) refusedState() string {
	switch e.Why {
	case "upstream", "tls", "endpoint_tls", "other":
	default:
		switch {
		case e.Late:
			return "cR"
		case e.Cut:
			return "CR"
		}
		return "PR"
	}
	switch {
	case e.Err == record.ErrQueueTimeout: // whatever had failed before
		return "sQ"
	case e.NumFailures > 0 && e.lastFailure().Cause == record.CauseTimeout:
		return "sC"
	case e.NumFailures > 0 && e.lastFailure().Cause == record.CauseLocal:
		return "RC"
	case e.NumFailures > 0:
		return "SC"
	case e.Waits > 0:
		return "sQ"
	case e.Upstream != "":
		return "SC"
	}
	return "PR"
}
