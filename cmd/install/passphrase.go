package main

import (
	"fmt"
	"os"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"airlift/internal/fault"
	"airlift/internal/interrupt"
)

// readPassphrase reads a line from the terminal, without showing it.
func readPassphrase(cmd *cobra.Command, prompt string) (string, error) {
	text, ok, err := interrupt.ReadPassword(cmd.Context(), os.Stdin, cmd.ErrOrStderr(), prompt)
	switch {
	case !ok:
		return "", fault.New(fault.Usage, "a passphrase is read only from a terminal").Hint("run it on a terminal, or use keys of age: --recipient and --identity")
	case err != nil:
		return "", fmt.Errorf("reading the passphrase: %w", err)
	}
	return text, nil
}

// passphraseRecipient reads a new passphrase twice.
func passphraseRecipient(cmd *cobra.Command) (age.Recipient, error) {
	first, err := readPassphrase(cmd, "Passphrase for the backup: ")
	if err != nil {
		return nil, err
	}
	again, err := readPassphrase(cmd, "The same passphrase again: ")
	if err != nil {
		return nil, err
	}
	if first == "" || first != again {
		return nil, fault.New(fault.Usage, "the passphrases are empty or differ").Hint("run the command again")
	}
	return age.NewScryptRecipient(first)
}
