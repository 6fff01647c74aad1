// Crictl answers kubeadm v1.29's calls of cri-tools' crictl, with the same output: info,
// pods -q, stopp, rmp, inspecti and pull. It replaces the real crictl, whose module the Go
// module proxy does not serve, on hosts that are installed with kubeadm.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"text/template"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// timeout limits each call; to stop a pod takes up to its grace period.
const timeout = time.Minute

func main() {
	if err := command().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// tool is a connection to the container runtime.
type tool struct {
	endpoint, images string
	debug            bool
	conn             *grpc.ClientConn
}

func (t *tool) runtime() cri.RuntimeServiceClient { return cri.NewRuntimeServiceClient(t.conn) }
func (t *tool) image() cri.ImageServiceClient     { return cri.NewImageServiceClient(t.conn) }

func command() *cobra.Command {
	t := &tool{}
	root := &cobra.Command{
		Use: "crictl", Short: "Answer the crictl calls of kubeadm v1.29",
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(*cobra.Command, []string) (err error) {
			t.conn, err = grpc.NewClient(t.endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
			return err
		},
	}
	f := root.PersistentFlags()
	f.StringVarP(&t.endpoint, "runtime-endpoint", "r", "unix:///run/containerd/containerd.sock", "the runtime's socket")
	f.StringVarP(&t.images, "image-endpoint", "i", "", "ignored: the runtime's socket also serves images")
	f.BoolVarP(&t.debug, "debug", "D", false, "ignored")

	var output, text string
	info := &cobra.Command{Use: "info", Args: cobra.NoArgs, RunE: t.with(func(ctx context.Context, _ string) error {
		return t.info(ctx, text)
	})}
	info.Flags().StringVarP(&output, "output", "o", "json", "json or go-template")
	info.Flags().StringVar(&text, "template", "", "the template, for go-template")

	var quiet bool
	pods := &cobra.Command{Use: "pods", Args: cobra.NoArgs, RunE: t.with(func(ctx context.Context, _ string) error {
		list, err := t.runtime().ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
		for _, p := range list.GetItems() {
			fmt.Println(p.Id)
		}
		return err
	})}
	pods.Flags().BoolVarP(&quiet, "quiet", "q", false, "print only IDs (this stand-in prints nothing else)")

	root.AddCommand(info, pods,
		&cobra.Command{Use: "stopp", Args: cobra.ExactArgs(1), RunE: t.with(func(ctx context.Context, id string) error {
			_, err := t.runtime().StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id})
			return err
		})},
		&cobra.Command{Use: "rmp", Args: cobra.ExactArgs(1), RunE: t.with(func(ctx context.Context, id string) error {
			_, err := t.runtime().RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id})
			return err
		})},
		&cobra.Command{Use: "inspecti", Args: cobra.ExactArgs(1), RunE: t.with(t.inspectImage)},
		&cobra.Command{Use: "pull", Args: cobra.ExactArgs(1), RunE: t.with(func(ctx context.Context, name string) error {
			_, err := t.image().PullImage(ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: name}})
			return err
		})})
	return root
}

// with runs a call with at most one argument, within the timeout.
func (t *tool) with(call func(context.Context, string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		var arg string
		if len(args) == 1 {
			arg = args[0]
		}
		return call(ctx, arg)
	}
}

// info prints the runtime's status, or the result of a template. The field config has the
// runtime's configuration, if the runtime reports it.
func (t *tool) info(ctx context.Context, text string) error {
	status, err := t.runtime().Status(ctx, &cri.StatusRequest{Verbose: true})
	if err != nil {
		return err
	}
	all := map[string]any{"status": status.GetStatus()}
	for name, value := range status.GetInfo() {
		var parsed any
		if json.Unmarshal([]byte(value), &parsed) != nil {
			parsed = value
		}
		all[name] = parsed
	}
	if text == "" {
		return json.NewEncoder(os.Stdout).Encode(all)
	}
	parsed, err := template.New("info").Parse(text)
	if err != nil {
		return err
	}
	return parsed.Execute(os.Stdout, all)
}

func (t *tool) inspectImage(ctx context.Context, name string) error {
	status, err := t.image().ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}})
	if err != nil {
		return err
	}
	if status.GetImage() == nil {
		return fmt.Errorf("no such image %q present", name)
	}
	return json.NewEncoder(os.Stdout).Encode(status.GetImage())
}
