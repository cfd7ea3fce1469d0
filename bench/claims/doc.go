// Package claims repeats published claims about the ideas that Penstock implements, and the
// refusals of docs/decisions.md that have a figure: BenchmarkClaim has a benchmark for each. Its
// output goes into the row of docs/claims.md by hand.
//
//	go test ./bench/claims -run '^$' -bench 'Claim/nagle$' -benchtime 1x
//
// Where times are compared, contestants take turns, of about a millisecond where the work
// allows it. So other work of the machine affects all of them alike, and ratios are those
// within a round. It is for Linux only.
package claims
