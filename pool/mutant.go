package pool

// mutant names the safety mechanism that this build lacks: none, unless a build tag penstock_mutant_... says
// otherwise. Such builds are broken on purpose, to show that TestOwnershipStress notices: see TestMutants.
const (
	none       = iota
	noBarrier  // a revoked owner may not know it yet
	noWait     // the holder of mu does not wait until the owner has left
	noRevoke   // the owner does not look whether it is revoked
	noLowWater // used items count as idle for the whole interval
	noPin      // inside, an owner may move to another P or be stopped
	noBudget   // slots are filled without being reserved
	noShut     // a closed pool takes items
)
