package installer

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"airlift/bundle"
	"airlift/installer/timeline"
)

// A controller manager up to v1.30 sleeps for ten seconds in the middle of its
// first start (nodeipam's listNodes polls, and pauses before the first look),
// and until then none of its controllers does anything, because their caches
// are started behind all of them. So the first control plane's pods would be
// made ten seconds late.
//
// Meanwhile a stand-in does it: the same program, from the same image, as a
// child of the installer, with only those controllers that the system pods
// need. It is ended with init, and at the latest before the real one can have
// woken. It is not needed for the result: where it fails, everything comes as
// late as it would without it.

const (
	// lastSleeper is the last minor version that sleeps.
	lastSleeper = 30
	// sleepTime is nodeipam's nodePollInterval.
	sleepTime = 10 * time.Second
)

// standInControllers make pods of Deployments and DaemonSets, let pods onto a
// node that is Ready, give them the cluster's CA and make their Services known.
const standInControllers = "deployment-controller,replicaset-controller,daemonset-controller," +
	"node-lifecycle-controller,root-ca-certificate-publisher-controller,endpointslice-controller,endpoints-controller"

// standIn starts the stand-in where there is one to be, and returns how to end
// it. started is when the real one was put in place.
func (n *Node) standIn(ctx context.Context, started time.Time) (stop func()) {
	none := func() {}
	if n.Config.Minor() > lastSleeper || n.rerun || n.payload == nil || n.Single || n.store == nil || !n.exists(superAdminConf) {
		return none
	}
	flags, _, err := n.staticPod("kube-controller-manager")
	if err != nil || flags == nil {
		return none
	}
	image, ok := n.image("kube-controller-manager")
	if !ok {
		return none
	}
	program, err := n.store.OpenProgram(ctx, image, "kube-controller-manager")
	if err != nil {
		n.Console.Debug(1, "no stand-in for the controller manager: %v", err)
		return none
	}
	args := []string{
		"--kubeconfig=" + n.Host.Path(superAdminConf),
		"--controllers=" + standInControllers,
		"--leader-elect=false", "--allocate-node-cidrs=false", "--use-service-account-credentials=false",
		"--secure-port=0", // it serves nothing
		"--kube-api-qps=200", "--kube-api-burst=400",
		"--root-ca-file=" + cmp.Or(flags["root-ca-file"], n.Config.CertificatesDir+"/ca.crt"),
	}
	if gates := flags["feature-gates"]; gates != "" {
		args = append(args, "--feature-gates="+gates)
	}
	ctx, cancel := context.WithDeadline(ctx, started.Add(sleepTime))
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer program.Close()
		ctx, span := timeline.Start(ctx, timeline.Background, "controller manager's stand-in")
		defer span.End()
		runChild(ctx, program, args)
	}()
	return func() {
		cancel()
		<-done
	}
}

// runChild runs an open program until it ends or ctx does. The kernel ends it
// when this process dies in whatever way.
func runChild(ctx context.Context, program *os.File, args []string) {
	// The signal comes when the thread that started the child is gone.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, "/proc/self/fd/3", args...) // the first of ExtraFiles
	cmd.ExtraFiles = []*os.File{program}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	_ = cmd.Run()
}

// image finds one of the bundle's images by its component's name.
func (n *Node) image(component string) (bundle.Image, bool) {
	for _, i := range n.manifest.Images {
		if i.Name == component {
			return i, true
		}
	}
	return bundle.Image{}, false
}
