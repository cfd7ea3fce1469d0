package pool

// mutant names the safety mechanism that this build does without: none, unless
// a build tag penstock_mutant_... says otherwise. Such builds are broken on
// purpose. They show that TestOwnershipStress would notice: see TestMutants.
const (
	none       = iota
	noBarrier  // a revoked owner may not have noticed
	noWait     // or may not have left
	noRevoke   // or does not look
	noLowWater // used items count as idle for the whole interval
	noPin      // an owner may move to another P, or be stopped, inside
	noBudget   // slots are filled without being reserved
	noShut     // a closed pool takes items
)
