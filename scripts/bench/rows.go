package main

// A row is one measured quantity, of one way or of both.
type row struct {
	name    string
	unit    string // "s", "MB", "%" or "", a count
	counted string // its definition
	ratio   bool   // whether to print the ratio of the two ways
}

// The rows, in the order of the table.
var rows []*row

func define(unit string, ratio bool, name, counted string) *row {
	r := &row{name, unit, counted, ratio}
	rows = append(rows, r)
	return r
}

var (
	sizeRow = define("MB", true, "carried",
		`By hand: image layers as pulled (gzip), each once, release archives as released, gzip -6 of kubelet, kubectl, kubeadm
and runc. Airlift: the one file, with default compression.`)
	sizeFewRow = define("MB", true, "carried, few plugins",
		`The same, but by hand with only four CNI plugins (bridge, host-local, loopback, portmap), each with gzip -6.`)
	sizeBestRow = define("MB", true, "carried, best",
		`As "carried", with the file given by --best.`)

	importRow = define("s", true, "import",
		`All images into a running containerd, until the command returns. For Airlift this is the
phase "install init phase images", including its start.`)
	importDiskRow = define("s", true, "import, on disk",
		`The same, until everything is written to the disk (sync).`)
	initRow = define("s", true, "init",
		`From the start of the first command until the node and all system pods are Ready.`)
	initReturnRow = define("s", false, "init, returned",
		`Until the last command returns: "install init", or kubectl apply, the last command by hand.`)
	relapseRow = define("", false, "init, relapses",
		`How often everything was Ready and within 5 s something was not.`)
	joinRow = define("s", true, "join",
		`From the start of the first command until the second node is Ready.`)
	joinPodsRow = define("s", true, "join, with pods",
		`The same, until its system pods are also Ready.`)
	joinReturnRow = define("s", false, "join, returned",
		`Until the last command returns.`)
	againRow = define("s", false, "second init",
		`"install init" on a healthy node, until it returns. A changed file or a restarted service is an error.`)

	memoryRow = define("MB", false, "memory, init",
		`The kernel's peak of resident memory of the largest process (VmHWM), including mapped executables. By hand: ctr,
kubeadm, tar and the like. The memory of containerd is not counted for either.`)
	joinMemoryRow = define("MB", false, "memory, join", `As for init.`)

	buildRow = define("s", false, "second build",
		`"bundle build" with all downloads in its cache: reads, compresses, writes and verifies.`)
	buildCPURow = define("s", false, "– its CPU time",
		`User and system. Divided by the time, this is the number of cores in use.`)
	buildBytesRow = define("MB", false, "– downloaded",
		`Bytes of files, layers and documents that the sites sent, from their access logs.`)
	buildRequestsRow = define("", false, "– requests",
		`All requests, including those answered with 404, which are not cached.`)
	buildMemoryRow = define("MB", false, "– memory",
		`The kernel's peak of resident memory.`)

	initImportRow = define("s", false, "init's import",
		`As "import, on disk".`)
	initImportMemoryRow = define("MB", false, "– memory",
		`The kernel's peak of resident memory. The memory of containerd is not counted.`)
	moreImportRow = define("s", false, "import of an additional bundle",
		`"more import" of a file with the same images and without Kubernetes, also with sync.`)
	moreImportMemoryRow = define("MB", false, "– its memory",
		`As for init's import.`)

	upgradeRow = define("s", true, "upgrade, control plane",
		`From the start of the first command until the node has the newer version and it and all system pods are Ready.
By hand: ctr import, kubeadm upgrade apply, drain, kubelet and kubectl, uncordon. Airlift: "upgrade apply".`)
	upgradeReturnRow = define("s", true, "– returned",
		`Until the last command returns.`)
	upgradeNodeRow = define("s", true, "upgrade, worker",
		`The same for the second node: "kubeadm upgrade node" or "upgrade node".`)
	upgradeNodeReturnRow = define("s", true, "– worker, returned",
		`Until the last command returns.`)
	upgradeBothRow = define("s", true, "upgrade, both nodes",
		`The sum of both.`)
	upgradeBothReturnRow = define("s", true, "– both, returned",
		`Until the last command returns.`)

	idleControlRows = defineNode("idle control plane",
		`Of all processes of the host, pods included, 20 s after all system pods are Ready, for a minute.
A control plane and a worker, of both ways at the same time. Next to kubeadm by hand, Airlift has --embedded-registry.`)
	idleWorkerRows   = defineNode("idle worker", `The same.`)
	smallControlRows = defineNode("control plane, 10 pods on the worker",
		`The same, 20 s after ten pods with a readiness probe every 10 s are ready on the worker.`)
	smallWorkerRows = defineNode("worker with 10 pods", `The same, with these pods.`)

	newerRow = define("MB", false, "newer bundle",
		`The file given by --newer.`)
	deltaRow = define("MB", false, "delta",
		`What "bundle delta" writes for it, from the measured bundle.`)
	deltaTimeRow   = define("s", false, "– to create it", `Including its check.`)
	deltaMemoryRow = define("MB", false, "– memory", `The kernel's peak of resident memory.`)
	patchTimeRow   = define("s", false, "– to apply it", `"bundle patch", until the newer bundle is written.`)
	patchMemoryRow = define("MB", false, "– memory", `The kernel's peak of resident memory.`)

	uncheckedInitRow = define("s", false, "init, file not checked",
		`As "init", with --skip-file-check.`)
	checkedInitRow = define("s", false, "init, file checked",
		`As "init": the whole file is compared with its digests before the first change.`)
	uncheckedDriveRow = define("s", false, "slow drive: init, not checked",
		`As "init, file not checked", with the file on a drive of 30 MB/s and not in the page cache.`)
	checkedDriveRow = define("s", false, "slow drive: init, checked",
		`The same, with the check.`)
)

// nodeRows are what a node uses.
type nodeRows struct{ memory, resident, cpu *row }

func defineNode(name, counted string) *nodeRows {
	return &nodeRows{
		define("MB", true, name+", memory", "95th percentile of samples each second. Shared pages are counted once (PSS). "+counted),
		define("MB", true, "– resident", "The same, as a sum of resident sets (RSS), which counts shared pages several times."),
		define("%", true, "– processor", "Percent of a core, including processes that ended."),
	}
}
