package main

import (
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newCompletion() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print a script that lets a shell complete epdns's arguments",
		Long: `Print a script that lets a shell complete epdns's arguments, Services, namespaces and
contexts among them. To install it, once and for all sessions to come:

  bash        epdns completion bash >~/.local/share/bash-completion/completions/epdns
              (needs the package bash-completion, and the directory)
  zsh         epdns completion zsh >"${fpath[1]}/_epdns"
              (needs "autoload -U compinit; compinit" in ~/.zshrc)
  fish        epdns completion fish >~/.config/fish/completions/epdns.fish
  powershell  epdns completion powershell >>$PROFILE

As a plugin of kubectl, kubectl's own completion does it, if there is a second link to the
program beside kubectl-epdns: kubectl_complete-epdns.`,
		Example:               `  source <(epdns completion bash)   # for this session`,
		DisableFlagsInUseLine: true,
		ValidArgs:             shells,
		Args: func(cmd *cobra.Command, args []string) error {
			switch known := strings.Join(shells, ", "); {
			case len(args) == 0:
				return usagef("completion for what? One of %s (see %s --help)", known, cmd.CommandPath())
			case len(args) > 1 || !slices.Contains(shells, args[0]):
				return usagef("completion %q: give one of %s (see %s --help)", strings.Join(args, " "), known, cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			generate := map[string]func(io.Writer) error{
				"bash":       func(w io.Writer) error { return cmd.Root().GenBashCompletionV2(w, true) },
				"zsh":        cmd.Root().GenZshCompletion,
				"fish":       func(w io.Writer) error { return cmd.Root().GenFishCompletion(w, true) },
				"powershell": cmd.Root().GenPowerShellCompletionWithDesc,
			}
			return generate[args[0]](cmd.OutOrStdout())
		},
	}
}

// completeValues says which values a flag can have.
func completeValues(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic("epdns: " + err.Error())
	}
}

// completeFlags lets shells complete files where a flag names one, of these kinds if
// any are given. Without that, they would for every flag.
func completeFlags(root *cobra.Command) {
	files := map[string][]string{
		"config":         {"yaml", "yml"},
		"manifests":      {"yaml", "yml", "json"}, // and directories, as always
		"kubeconfig":     nil,
		"cookie-secrets": nil,
	}
	names := map[string]cobra.CompletionFunc{"namespace": completeNamespace, "context": completeContext}
	for _, cmd := range root.Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if complete, ok := names[f.Name]; ok {
				if err := cmd.RegisterFlagCompletionFunc(f.Name, complete); err != nil {
					panic("epdns: " + err.Error())
				}
				return
			}
			kinds, isFile := files[f.Name]
			_, known := cmd.GetFlagCompletionFunc(f.Name)
			switch {
			case len(kinds) > 0:
				cmd.MarkFlagFilename(f.Name, kinds...)
			case !isFile && !known:
				completeValues(cmd, f.Name)
			}
		})
	}
}
