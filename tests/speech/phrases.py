"""What is said in each set and split, and by whom.

Voices go round in turn, so no voice owns a kind of phrase, save where a voice is named: those clips are by a voice that
says the phrase so that it can be understood (most engines read a hum as a word).
"""

from __future__ import annotations

from typing import TypeAlias

Phrases: TypeAlias = dict[str, list[str | tuple[str, str]]]
"""By split: what is said, or what is said and by which voice."""

QUESTIONS: Phrases = {
    "tune": [
        "What is the largest ocean on Earth?",
        "How many days are there in a week?",
        "What color do you get from blue and yellow?",
        "Who wrote the play Romeo and Juliet?",
        "What do bees make from flowers?",
        "What is the opposite of cold?",
        "Which planet is the closest to the sun?",
        "What should I wear when it is raining?",
    ],
    "test": [
        "What is the capital of France?",
        "How many legs does a spider have?",
        "What is the tallest mountain in the world?",
        "Can you tell me what photosynthesis is?",
        "What do you need to make pancakes?",
        "Who was the first person on the moon?",
        "What is the boiling point of water?",
        "How do I boil an egg?",
        "Why is the sky blue during the day?",
        "What language do people speak in Brazil?",
        "Which animal is known as the king of the jungle?",
        "How many hours are there in a day?",
        "What is a good name for a dog?",
        "Where does the president of the United States live?",
        "What is the best way to learn a language?",
        "Why do leaves change color in the autumn?",
        "What is the largest planet in our solar system?",
        "How can I fall asleep more quickly?",
        "What instrument has black and white keys?",
        "Tell me a fun fact about elephants.",
        "What is the main ingredient in bread?",
        "Which season comes after winter?",
        "What do doctors do in a hospital?",
        "How many minutes are in two hours?",
    ],
}

BACKCHANNELS: Phrases = {
    "tune": [
        ("mm-hmm", "slt"),
        "right",
        "yeah",
        "uh-huh",
        "okay",
        "I see",
        ("sure", "hibari-low"),
        "yep",
        ("hmm", "slt"),
        ("hmm", "espeak-gb"),
        "oh wow",
        "got it",
        ("yes", "slt"),
        ("cool", "slt"),
        ("great", "hibari-low"),
    ],
    "test": [
        ("mm-hmm", "rms"),
        ("mm-hmm", "awb"),
        ("uh-huh", "hibari-high"),
        ("uh-huh", "awb"),
        ("hmm", "awb"),
        ("mm", "rms"),
        ("aha", "joe"),
        "right",
        "yeah",
        "okay",
        ("I see", "awb"),
        "sure",
        "yep",
        ("oh wow", "joe"),
        "got it",
        "oh really",
        "great",
        "nice",
        "of course",
        "makes sense",
        "exactly",
        ("true", "hibari-high"),
        "alright",
        "oh okay",
        "yes",
        "absolutely",
        ("yeah yeah", "joe"),
        ("fair enough", "joe"),
        "interesting",
        "right right",
        "okay sure",
        "wow",
        ("good", "hibari-high"),
        "I know",
        ("yeah", "joe-fast"),
        ("I see", "joe"),
        ("right", "hibari-high"),
    ],
}

NOISES: dict[str, list[tuple[str, int]]] = {
    "tune": [("cough", 101), ("throat clear", 102), ("laugh", 103), ("door knock", 104), ("sigh", 105)],
    "test": [
        ("cough", 201),
        ("cough", 202),
        ("throat clear", 203),
        ("throat clear", 204),
        ("laugh", 205),
        ("laugh", 206),
        ("door knock", 207),
        ("sigh", 208),
        ("keyboard", 209),
        ("paper rustle", 210),
    ],
}
"""Sound and seed."""

COMMANDS: Phrases = {
    "tune": [
        "stop",
        "wait, no",
        "hold on",
        "no, the other one",
        "excuse me",
        "actually, tell me about dogs",
        "that's enough",
        "quiet please",
        "hang on a second",
        "can you repeat that",
        "wait",
        "no",
        "stop talking",
        "never mind",
        "what about tomorrow",
        "sorry, one more thing",
        "slow down",
        "let me speak",
    ],
    "test": [
        "stop",
        "wait, no",
        "hold on",
        "no, the other one",
        "excuse me",
        "actually, tell me about Paris",
        "that's enough",
        "quiet please",
        "hang on a second",
        "can you repeat that",
        "wait",
        "no no no",
        "stop talking",
        "let me ask something else",
        "I meant the second one",
        "what about London",
        "sorry, I have a question",
        "never mind",
        "please stop",
        "one moment",
        "slow down please",
        "say that again",
        "that's wrong",
        "skip that part",
        "go back",
        "pause",
        "cancel that",
        "be quiet",
        "not that one",
        "wait a minute",
        "forget it",
        "what did you say",
        "listen to me",
        "can I say something",
        "change the subject",
        "no",
        "stop",
        ("wait", "joe-fast"),
    ],
}

RECORDED: list[tuple[str, str]] = [
    ("cards/001.wav", "ten of clubs"),
    ("cards/003.wav", "seven of clubs"),
    ("cards/002.wav", "four queen of clubs"),
    ("cards/004.wav", "five five"),
    ("goforward.raw", "go forward ten meters"),
]
"""Living voices: short utterances from PocketSphinx's test data, for the test split of the commands."""

ROUNDS: dict[str, dict[str, list[str]]] = {
    "questions": {
        "tune": ["slt", "hibari-low"],
        "test": ["joe", "hibari-high", "joe", "rms", "joe-fast", "awb"],
    },
    "backchannels": {
        "tune": ["slt", "hibari-low", "espeak-gb"],
        "test": ["joe", "hibari-high", "rms", "awb", "joe-fast", "espeak-us-f", "joe"],
    },
    "commands": {
        "tune": ["hibari-low", "slt", "espeak-gb"],
        "test": ["hibari-high", "joe", "awb", "rms", "joe-fast", "espeak-us-f", "joe"],
    },
}
