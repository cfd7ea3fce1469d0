package iperf3

import (
	"encoding/json"
	"fmt"
	"strings"
)

// result is the used part of the client's output (iperf3 -J).
type result struct {
	Error string `json:"error"`
	End   struct {
		Sent struct {
			Retransmits int64 `json:"retransmits"`
		} `json:"sum_sent"`
		Received struct {
			Bytes         int64   `json:"bytes"`
			BitsPerSecond float64 `json:"bits_per_second"`
		} `json:"sum_received"`
	} `json:"end"`
}

// parse reads it. ended is how the client ended, for one that says nothing of use.
func parse(said string, ended error) (*result, error) {
	r := new(result)
	if err := json.Unmarshal([]byte(said), r); err != nil {
		return nil, fmt.Errorf("%w (it said %.80q)", ended, strings.TrimSpace(said))
	}
	switch {
	case r.Error != "":
		return nil, fmt.Errorf("iperf3: %s", r.Error)
	case r.End.Received.Bytes <= 0 || !(r.End.Received.BitsPerSecond > 0):
		return nil, fmt.Errorf("iperf3 received nothing: %w", ended)
	}
	return r, nil
}
