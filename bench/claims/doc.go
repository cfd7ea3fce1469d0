// Package claims repeats published claims about the ideas that Penstock implements, and the measurements by which
// docs/decisions.md refuses an idea. BenchmarkClaim has a benchmark for each. Its output is copied to the row in
// docs/claims.md by hand. This command runs a benchmark:
//
//	go test ./bench/claims -run '^$' -bench 'Claim/nagle$' -benchtime 1x
//
// Where times are compared, the contestants take turns of about a millisecond, if the work allows it. So other
// work of the machine affects all of them alike, and each ratio is from one round. It is for Linux only.
package claims
