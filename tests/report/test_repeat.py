from llmexp.report.repeat import repeat_lines


def test_a_key_given_twice_keeps_the_commands_in_full():
    commands = ["python -m llmexp seed=1 seed=2", "python -m llmexp seed=2"]
    assert repeat_lines(commands) == [f"#{number}   {command}" for number, command in enumerate(commands, 1)]


def test_another_program_keeps_the_commands_in_full():
    commands = ["python -m llmexp seed=1", "python3 -m llmexp seed=2"]
    assert repeat_lines(commands, 3) == [f"#{number}   {command}" for number, command in enumerate(commands, 3)]


def test_words_with_blanks_stay_quoted():
    shared = "python -m llmexp 'a=1 2'"
    lines = repeat_lines([f"{shared} b=1", f"{shared} 'b=2 3'", shared])
    assert lines == [
        "to repeat a run, add its words: python -m llmexp 'a=1 2'",
        "#1   b=1",
        "#2   'b=2 3'",
        "#3   (no more words)",
    ]


def test_runs_that_differ_in_their_method_have_one_line():
    lines = repeat_lines(["python -m llmexp method=F+R model=7b", "python -m llmexp method=Z2 model=7b"])
    assert lines == ["to repeat a run, add its method, such as method=F+R: python -m llmexp model=7b"]
