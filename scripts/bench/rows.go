package main

// A row is one thing that is measured, of one way or of both.
type row struct {
	name    string
	unit    string // "s", "MB" or "", a count
	counted string // what exactly
	ratio   bool   // whether to compare the two ways
}

// The rows, in the order they are printed in.
var rows []*row

func define(unit string, ratio bool, name, counted string) *row {
	r := &row{name, unit, counted, ratio}
	rows = append(rows, r)
	return r
}

var (
	sizeRow = define("MB", true, "carried",
		`By hand: image layers as pulled (gzip), each once, release archives as released, gzip -6 of kubelet, kubectl, kubeadm
and runc. Airlift: the one file, with default settings.`)
	sizeFewRow = define("MB", true, "carried, few plugins",
		`The same, but of the CNI plugins by hand only gzip -6 of the four that run (bridge, host-local, loopback, portmap).`)
	sizeBestRow = define("MB", true, "carried, best",
		`As "carried", with the file given by --best.`)

	importRow = define("s", true, "import",
		`All images, into a containerd that runs: until the command returns. Airlift's is the
phase "install init phase images", its start included.`)
	importDiskRow = define("s", true, "import, on disk",
		`The same, and until all of it is written to the disk (sync).`)
	initRow = define("s", true, "init",
		`From the start of the first command until the node and all system pods are Ready.`)
	initReturnRow = define("s", false, "init, returned",
		`Until the last command returns: "install init", or kubectl apply, when by hand there is nothing left to do but wait.`)
	relapseRow = define("", false, "init, relapses",
		`How often everything was Ready and then was not, within 5 s.`)
	joinRow = define("s", true, "join",
		`From the start of the first command until the second node is Ready.`)
	joinPodsRow = define("s", true, "join, pods, too",
		`The same, until its system pods are Ready, too.`)
	joinReturnRow = define("s", false, "join, returned",
		`Until the last command returns.`)
	againRow = define("s", false, "second init",
		`"install init" on a healthy node, until it returns; it is an error if any file of it or service changed.`)

	memoryRow = define("MB", false, "memory, init",
		`The kernel's peak of resident memory of the largest process (VmHWM), with pages of program files. By hand: ctr,
kubeadm, tar and the like; what containerd needs meanwhile is not counted for either.`)
	heldRow = define("MB", false, "memory, held, init",
		`Anonymous and shared memory (as in a memfd) of all processes of the command at once, sampled every 10 ms.`)
	joinMemoryRow = define("MB", false, "memory, join", `As for init.`)
	joinHeldRow   = define("MB", false, "memory, held, join", `As for init.`)

	extraDiskRow = define("MB", false, "extra disk, init",
		`The most that was used on the host's disk, /run and /dev/shm at any moment of init (sampled every 5 ms; blocks that
are not written yet and files without a name count), less what is used in the end.`)
	diskRow = define("MB", false, "disk used after init",
		`By everything on the host, with the host's own system and with what was carried, which is the row "carried".`)
	passingRow = define("", false, "files that come and go",
		`Files and folders that "install init" made anywhere on disk, in /run or /dev/shm and that were gone when it
returned, seen by fanotify in a run of its own. A file that is renamed to what it was made for has not gone.`)
	passingBytesRow = define("MB", false, "– their size", `Summed, as each was last closed.`)

	buildRow = define("s", false, "second build",
		`"bundle build" with all downloads in its cache: reads, compresses, writes and verifies.`)
	buildCPURow = define("s", false, "– its CPU time",
		`User and system. Divided by the time, it is the cores in use.`)
	buildBytesRow = define("MB", false, "– downloaded",
		`Bytes of files, layers and documents that the sites sent it, by their access logs.`)
	buildRequestsRow = define("", false, "– requests",
		`All requests of it, also those that were answered that there is no such file: nobody keeps that in a cache.`)
	buildMemoryRow = define("MB", false, "– memory",
		`The kernel's peak of resident memory.`)

	uncheckedInitRow = define("s", false, "init, file not checked",
		`As "init", with --skip-file-check.`)
	checkedInitRow = define("s", false, "init, file checked",
		`As "init": before the first change the whole file is compared with its digests.`)
	uncheckedDriveRow = define("s", false, "slow drive: init, not checked",
		`As "init, file not checked", with the file on a drive of 30 MB/s that nothing was read from before.`)
	checkedDriveRow = define("s", false, "slow drive: init, checked",
		`The same, with the check.`)

	oneCoreImportRow     = define("s", true, "one core: import", `As "import", with hosts that may use one core (cpuset).`)
	oneCoreImportDiskRow = define("s", true, "one core: import, on disk", `As "import, on disk".`)
	oneCoreInitRow       = define("s", true, "one core: init", `As "init".`)
	slowImportRow        = define("s", true, "slow disk: import",
		`As "import", with a host's disk of 50 MB/s each way, and at most 200 MB waiting to be written.`)
	slowImportDiskRow = define("s", true, "slow disk: import, on disk", `As "import, on disk".`)
	slowInitRow       = define("s", true, "slow disk: init", `As "init".`)
)
