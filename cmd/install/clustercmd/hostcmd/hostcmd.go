// Package hostcmd has the hidden commands that the driver of a cluster runs on its hosts. Package installer/multihost/agent documents
// what they print.
package hostcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"
	kjson "sigs.k8s.io/json"

	"airlift/cmd/output"
	"airlift/installer/backup"
	"airlift/installer/cluster"
	"airlift/installer/cluster/workloads"
	"airlift/installer/host"
	"airlift/installer/multihost/agent"
	"airlift/installer/node"
	"airlift/installer/snapshot"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// New returns the command host.
func New() *cobra.Command {
	cmd := command("host", "What './install cluster' runs on each host", (*cobra.Command).Help)
	cmd.Hidden = true
	cmd.AddCommand(newFacts(), newHold(), newCredentials(), newReach(), newNodes(), newGate(), newWait(), newBackup())
	return cmd
}

// command returns a command without arguments.
func command(use, short string, do func(cmd *cobra.Command) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, RunE: func(cmd *cobra.Command, _ []string) error { return do(cmd) }}
}

// onCluster reads JSON from standard input, unless into is nil, does something with the cluster of this control plane, and prints the
// answer.
func onCluster(cmd *cobra.Command, into any, do func(ctx context.Context, client *cluster.Client, h *host.Host) (answer any, err error)) error {
	if into != nil {
		if err := readInput(cmd, into); err != nil {
			return err
		}
	}
	h, _ := openHost()
	client, err := agent.Connect(h)
	if err != nil {
		return err
	}
	answer, err := do(cmd.Context(), client, h)
	if err != nil {
		return err
	}
	return printLine(cmd, answer)
}

// printLine prints a value as one line of JSON, for machines.
func printLine(cmd *cobra.Command, v any) error {
	return json.NewEncoder(output.Verbatim(cmd.OutOrStdout())).Encode(v)
}

// readInput reads JSON from standard input. Its parts may be secret, so the error does not repeat them.
func readInput(cmd *cobra.Command, into any) error {
	data, err := io.ReadAll(cmd.InOrStdin())
	if err != nil {
		return fmt.Errorf("reading standard input: %w", err)
	}
	strict, err := kjson.UnmarshalStrict(data, into)
	if err != nil || len(strict) > 0 {
		return fault.New(fault.Usage, "standard input is not the JSON that %s reads", cmd.CommandPath())
	}
	return nil
}

// openHost opens this host for reading. damaged is why its ledger cannot be read.
func openHost() (h *host.Host, damaged error) {
	h, damaged = host.Open("/")
	if damaged != nil {
		h = host.OpenDamaged("/")
	}
	return h, damaged
}

func newFacts() *cobra.Command {
	return command("facts", "Print what is on this host", func(cmd *cobra.Command) error {
		h, damaged := openHost()
		encoder := json.NewEncoder(output.Verbatim(cmd.OutOrStdout()))
		encoder.SetIndent("", "  ")
		return encoder.Encode(agent.ReadFacts(cmd.Context(), h, damaged))
	})
}

func newHold() *cobra.Command {
	var who string
	var beat time.Duration
	var again bool
	cmd := command("hold", "Keep other drivers away from this host until standard input ends", func(cmd *cobra.Command) error {
		if who == "" {
			return fault.New(fault.Usage, "--who is missing")
		}
		holder, last, release, err := host.LockForDriver("/", who, again)
		switch {
		case err != nil:
			return err
		case release == nil && last.Who != "":
			_ = printLine(cmd, agent.Held{Last: last})
			return agent.HadError(last)
		case release == nil:
			_ = printLine(cmd, agent.Held{Holder: holder})
			return agent.HeldError(holder, time.Now())
		}
		defer release()
		if err := printLine(cmd, agent.Held{Held: true, Holder: holder, Last: last}); err != nil {
			return err
		}
		h, _ := openHost()
		return agent.Hold(cmd.Context(), h, cmd.InOrStdin(), beat)
	})
	cmd.Flags().StringVar(&who, "who", "", "who holds it: user@machine, process and command")
	cmd.Flags().BoolVar(&again, "again", false, "take a lock that was lost, and fail if another driver had it since")
	cmd.Flags().DurationVar(&beat, "beat", 0, "end if standard input brought nothing for this `DURATION`; 0 means never")
	return cmd
}

func newBackup() *cobra.Command {
	var recipients []string
	cmd := command("backup", "Write a backup of the cluster to standard output", func(cmd *cobra.Command) error {
		out := output.Verbatim(cmd.OutOrStdout())
		_, _ = out.Write(nil) // from here on, events and the error are on standard error
		keys, _, err := backup.Recipients(recipients, nil)
		if err != nil {
			return err
		}
		h, unlock, err := node.OpenToChange("/")
		if err != nil {
			return err
		}
		unlock = sync.OnceFunc(unlock)
		defer unlock()
		b := snapshot.New(h, &workflow.Console{Out: cmd.ErrOrStderr()})
		b.Recipients = keys
		return b.Stream(cmd.Context(), out, unlock)
	})
	cmd.Flags().StringArrayVar(&recipients, "recipient", nil, "encrypt it with age to this public `KEY` (repeatable)")
	return cmd
}

func newCredentials() *cobra.Command {
	var controlPlane, remove bool
	var ttl time.Duration
	cmd := command("credentials", "Create or delete what hosts need to join", func(cmd *cobra.Command) error {
		if !remove {
			return onCluster(cmd, nil, func(ctx context.Context, client *cluster.Client, h *host.Host) (any, error) {
				return agent.CreateCredentials(ctx, client, h, ttl, controlPlane)
			})
		}
		if controlPlane {
			return fault.New(fault.Usage, "--delete and --control-plane cannot be given together")
		}
		var made agent.Credentials
		return onCluster(cmd, &made, func(ctx context.Context, client *cluster.Client, _ *host.Host) (any, error) {
			deleted, err := agent.DeleteCredentials(ctx, client, made)
			return map[string][]string{"deleted": deleted}, err
		})
	})
	cmd.Flags().BoolVar(&controlPlane, "control-plane", false, "also upload the certificates for control planes")
	cmd.Flags().DurationVar(&ttl, "ttl", 30*time.Minute, "how long the token is valid")
	cmd.Flags().BoolVar(&remove, "delete", false, "delete the credentials on standard input")
	return cmd
}

func newReach() *cobra.Command {
	var endpoint string
	var servers []string
	var limit time.Duration
	cmd := command("reach", "Check that this host reaches the cluster's endpoint", func(cmd *cobra.Command) error {
		return agent.CheckReach(cmd.Context(), endpoint, servers, limit)
	})
	cmd.Flags().StringVar(&endpoint, "endpoint", "", "the control-plane endpoint, HOST:PORT")
	cmd.Flags().StringSliceVar(&servers, "api-servers", nil, "the addresses of the API servers, HOST:PORT")
	cmd.Flags().DurationVar(&limit, "timeout", time.Minute, "how long the endpoint may be without an answer")
	return cmd
}

func newNodes() *cobra.Command {
	dryRun := false
	cmd := command("nodes", "Give nodes the labels and taints on standard input", func(cmd *cobra.Command) error {
		var wanted []cluster.NodeMeta
		return onCluster(cmd, &wanted, func(ctx context.Context, client *cluster.Client, _ *host.Host) (any, error) {
			return agent.SetNodes(ctx, client, wanted, dryRun)
		})
	})
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only print what would change")
	return cmd
}

func newGate() *cobra.Command {
	return command("gate", "Record what a batch of a roll has to pass", func(cmd *cobra.Command) error {
		var change agent.GateChange
		return onCluster(cmd, &change, func(ctx context.Context, client *cluster.Client, _ *host.Host) (any, error) {
			return change.Apply(ctx, client)
		})
	})
}

func newWait() *cobra.Command {
	w := agent.Wait{Healthy: workloads.Healthy{Pods: true}}
	input := struct {
		Nodes  *[]string       `json:"nodes"`
		Broken *map[string]int `json:"broken"`
	}{&w.Healthy.Nodes, &w.Healthy.Broken}
	cmd := command("wait", "Wait until the nodes on standard input are healthy", func(cmd *cobra.Command) error {
		if err := readInput(cmd, &input); err != nil {
			return err
		}
		h, _ := openHost()
		client, err := agent.Connect(h)
		if err != nil {
			return err
		}
		w.Report = func(missing []workloads.Lack) {
			// A lost output cancels the command.
			_ = printLine(cmd, map[string]any{"time": time.Now().UTC(), "waitingFor": agent.Texts(missing), "nodes": agent.NodesOf(missing)})
		}
		return w.Until(cmd.Context(), client.API)
	})
	cmd.Flags().StringVar(&w.Healthy.Version, "version", "", "the version of their kubelets")
	cmd.Flags().DurationVar(&w.Timeout, "timeout", 5*time.Minute, "how long they may be unhealthy, in total")
	cmd.Flags().DurationVar(&w.For, "for", 0, "how long they must be healthy in a row")
	cmd.Flags().BoolVar(&w.Healthy.Pods, "system-pods", true, "also wait for their pods in kube-system and kube-flannel")
	return cmd
}
