// Labctl runs labs of isolated hosts from the command line: see package lab.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"airlift/internal/fault"
	"airlift/scripts/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "error:", err)
	if hint := fault.Hint(err); hint != "" {
		fmt.Fprintln(os.Stderr, "hint:", hint)
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() > 0 {
		os.Exit(exit.ExitCode()) // of the command on the host
	}
	os.Exit(int(fault.ExitCode(err)))
}

func command() *cobra.Command {
	var name string
	root := &cobra.Command{
		Use:           "labctl",
		Short:         "Run isolated hosts on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&name, "name", "lab", "the lab's name")
	root.AddCommand(up(&name), down(&name), list(), rootfs(), shell(&name), execute(&name), copyIn(&name), reboot(&name), escapes(&name))
	return root
}

func up(name *string) *cobra.Command {
	var o lab.Options
	var virtual []string
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a lab",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Name, o.Kept = *name, true
			o.Log = logger(cmd)
			for _, text := range virtual {
				a, err := netip.ParseAddr(text)
				if err != nil || !a.Is4() {
					return fault.New(fault.Usage, "%q is not an IPv4 address", text).Hint("for example --virtual 10.77.0.100; IPv6 addresses in fd77::/32 need no flag")
				}
				o.Virtual = append(o.Virtual, a)
			}
			_, err := lab.Up(cmd.Context(), o)
			return err
		},
	}
	cmd.Flags().IntVar(&o.Hosts, "hosts", 2, "number of hosts")
	cmd.Flags().StringVar(&o.Suite, "suite", "", "the Debian release of the hosts (default bookworm)")
	cmd.Flags().IntVar(&o.Interfaces, "interfaces", 1, "network interfaces per host")
	cmd.Flags().StringSliceVar(&o.ExtraPackages, "packages", nil, "additional Debian packages on the hosts")
	cmd.Flags().StringSliceVar(&virtual, "virtual", nil, "an IPv4 `ADDRESS` that moves between hosts, as of --control-plane-vip; without it, the switch drops packets to that address")
	cmd.Flags().BoolVar(&o.SSH, "ssh", false, "run sshd on the hosts, which can log in at each other")
	cmd.Flags().BoolVar(&o.NoexecTmp, "noexec-tmp", false, "forbid executing files in /tmp")
	return cmd
}

func down(name *string) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Remove a lab and everything that belongs to it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
			defer cancel()
			if all {
				return lab.DownAll(ctx)
			}
			return (&lab.Lab{Name: *name}).Down(ctx)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "remove all labs on this machine")
	return cmd
}

func list() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the labs on this machine and their hosts",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			names, err := lab.List()
			if err != nil {
				return err
			}
			for _, name := range names {
				l, err := lab.Open(name)
				if err != nil {
					fmt.Fprintf(cmd.OutOrStdout(), "%s\tleft behind: %v\n", name, err)
					continue
				}
				for _, h := range l.Hosts {
					fmt.Fprintf(cmd.OutOrStdout(), "%s\t%s\t%s\t%s\n", name, h.Name, h.Addr, h.State())
				}
			}
			return nil
		},
	}
}

func rootfs() *cobra.Command {
	var suite string
	var packages []string
	cmd := &cobra.Command{
		Use:   "rootfs",
		Short: "Create the hosts' root file system if it is not cached, and print its path",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := lab.Rootfs(cmd.Context(), suite, "", packages, logger(cmd))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), path)
			return err
		},
	}
	cmd.Flags().StringVar(&suite, "suite", "", "the Debian release (default bookworm)")
	cmd.Flags().StringSliceVar(&packages, "packages", nil, "additional Debian packages on the hosts")
	return cmd
}

func shell(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "shell HOST",
		Short: "Open a root shell on a host",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			h, err := host(*name, args[0])
			if err != nil {
				return err
			}
			return h.Shell()
		},
	}
}

func execute(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "exec HOST -- COMMAND [ARG...]",
		Short: "Run a command on a host, as root",
		Args:  cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			h, err := host(*name, args[0])
			if err != nil {
				return err
			}
			return h.Exec(cmd.Context(), os.Stdin, os.Stdout, os.Stderr, args[1:]...)
		},
	}
}

func copyIn(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "copy FILE HOST PATH",
		Short: "Copy a file to a host",
		Args:  cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			h, err := host(*name, args[1])
			if err != nil {
				return err
			}
			info, err := os.Stat(args[0])
			if err != nil {
				return err
			}
			n, err := h.CopyIn(cmd.Context(), args[0], args[2], info.Mode())
			if err != nil {
				return err
			}
			logger(cmd)("copied %d bytes to %s:%s", n, h.Name, args[2])
			return nil
		},
	}
}

func reboot(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "reboot HOST",
		Short: "Reboot a host and wait until it is running",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			h, err := host(*name, args[0])
			if err != nil {
				return err
			}
			return h.Reboot(cmd.Context())
		},
	}
}

func escapes(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "escapes",
		Short: "Count the packets that tried to leave the hosts' network",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := lab.Open(*name)
			if err != nil {
				return err
			}
			c, err := l.Escapes(cmd.Context())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), c)
			return err
		},
	}
}

func host(labName, hostName string) (*lab.Host, error) {
	l, err := lab.Open(labName)
	if err != nil {
		return nil, err
	}
	return l.Host(hostName)
}

func logger(cmd *cobra.Command) func(string, ...any) {
	return func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) }
}
