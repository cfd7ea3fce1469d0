package claims

var balancerClaims = []*Claim{
	{
		ID:        "configuration",
		Title:     "A new configuration in force",
		Published: "95.7 % sooner than in 42 s, so in 1.8 s",
		Measures:  "It seems: from a change until all proxies follow it. What happened to open connections: not known.",
		Source:    recipe,
		Command:   "penstock-bench reload",
		Honest: "42 s and 1.8 s are how a configuration travels to a fleet, and no speed of a proxy. " +
			"Ours is the time from SIGHUP, with a file of 1,000 listeners and 10,000 endpoints, until the first connection is served by the new configuration; beside it the connections that the reload cut, which must be none.",
	},
	{
		ID:        "incident-silent",
		Title:     "An incident, endpoints that fall silent",
		Published: "842 → 127 ms in the mean, 3.2 → 0.18 % of requests failed",
		Measures:  "It seems: a part of the endpoints is slow or silent; without protection, and with circuit breakers and ejection. How many endpoints, for how long, with which timeouts: not known.",
		Source:    recipe,
		Command:   "penstock-bench incident --failures silent --modes off,on",
		Honest: "The figures of such an incident are those of its timeouts: what fails is what is tried until the first verdict, so a longer incident has a smaller share. Compare ratios: 6.6 and 17.8. " +
			"Ours: a third of the endpoints accepts and says nothing for 40 s.",
	},
	{
		ID:        "incident-slow",
		Title:     "An incident, endpoints that slow down",
		Published: "842 → 127 ms in the mean, 3.2 → 0.18 % of requests failed",
		Measures:  "The same figures, with endpoints that answer late instead of never.",
		Source:    recipe,
		Command:   "penstock-bench incident --failures slow --modes off,on",
		Honest: "A slow endpoint is harder to tell from a well one than a silent one, and some of its answers come in time. " +
			"Why the second ratio is harder to reach here is in docs/health.md.",
	},
}
